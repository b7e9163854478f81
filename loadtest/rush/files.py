"""The open files of a process: each connection of a buyer is one."""

from __future__ import annotations

import resource

#: Files that a process has open besides its connections to buyers: log, sockets, libraries.
SPARE = 200


class TooFewFiles(RuntimeError):
    """This machine allows fewer open files than a rush needs. The message says what to do."""


def allow(connections: int, *, what: str, otherwise: str) -> None:
    """Let this process, and those that it starts, open this many connections.

    what       whose they are, for the message
    otherwise  what to do instead of allowing more

    Raises TooFewFiles.
    """
    needed = connections + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise TooFewFiles(
            f"{what} needs {needed} open files, and {hard} are allowed: {otherwise}, "
            f"or allow more (ulimit -n {needed})"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
