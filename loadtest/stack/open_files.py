"""The limit on a process's open files, which also limits its connections."""

import resource

from loadtest.stack.node import StackError

#: Open files of a process besides its connections: its log, other sockets, libraries.
SPARE_FILES = 200


def raise_file_limit(connections: int, *, process: str, advice: str) -> None:
    """Raise the limit on open files, so that a process can open this number of connections.

    The limit holds for this process, and for each process that it starts from now on. Raises
    StackError if this machine allows fewer open files.

    process  the name of the process that needs the connections, for the error's message
    advice   what the user can do instead of allowing more open files, for the error's message
    """
    needed_files = connections + SPARE_FILES
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < needed_files:
        raise StackError(
            f"{process} needs {needed_files} open files, but only {hard_limit} are allowed: "
            f"{advice}, or allow more (ulimit -n {needed_files})"
        )
    if soft_limit != resource.RLIM_INFINITY and soft_limit < needed_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed_files, hard_limit))
