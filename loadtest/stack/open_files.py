"""The limit on open files: each connection is one."""

import resource

from loadtest.stack.node import StackError

#: Files that a process has open besides its connections: its log, other sockets, libraries.
SPARE_FILES = 200


def allow_connections(connections: int, *, process: str, advice: str) -> None:
    """Let this process, and those that it starts, open this many connections.

    process  which process needs them, for the message
    advice   what to do instead of allowing more open files, for the message

    Raises StackError if this machine allows fewer.
    """
    needed = connections + SPARE_FILES
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < needed:
        raise StackError(
            f"{process} needs {needed} open files, and {hard_limit} are allowed: {advice}, "
            f"or allow more (ulimit -n {needed})"
        )
    if soft_limit != resource.RLIM_INFINITY and soft_limit < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard_limit))
