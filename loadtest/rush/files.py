"""The open files of a process: each connection of a buyer is one."""

from __future__ import annotations

import resource
import select
from typing import Any

#: Files that a process has open beside its connections to buyers: log, sockets, libraries.
SPARE = 200


class TooFewFiles(RuntimeError):
    """This machine allows fewer open files than a rush needs. The message says what to do."""


def allow(connections: int, *, what: str, otherwise: str) -> None:
    """Let this process, and those that it starts, open so many connections.

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


def is_open(pool: Any, socket: Any) -> bool:
    """Whether nothing has come on a connection that was kept, not even its end.

    In place of geventhttpclient's own: it asks select(), which knows no file above 1,023, and of
    more buyers in a process those would connect again in the rush. gevent's poll() would let
    others run meanwhile, so this is Python's own.
    """
    if socket is None or socket.fileno() < 0:
        return False
    from gevent import monkey

    asked = monkey.get_original("select", "poll")()
    asked.register(socket.fileno(), select.POLLIN)
    return not asked.poll(0)
