"""This machine's own address: free ports, no proxy on the way to it, a folder for sockets."""

import os
import socket
import tempfile
from pathlib import Path

from servers.errors import EmbeddedError, explain

LOOPBACK = ("127.0.0.1", "localhost")
#: Bytes that the path of a Unix socket may have on every system.
SOCKET_PATH = 100
#: Where the folder may be if the usual one is too deep for a socket.
SHORT_FOLDERS = ("/tmp", "/var/tmp")


def ask_loopback_directly() -> None:
    """Add this machine to no_proxy, for this process and those that it starts from now on.

    With http_proxy but without no_proxy, requests to 127.0.0.1 would go to that proxy.
    """
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [name.strip() for name in known.split(",") if name.strip()]
    if "*" not in names:
        names += [name for name in LOOPBACK if name not in names]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)


def free_port(wanted: int = 0) -> int:
    """The port `wanted` if nobody listens there, else any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def runtime_folder() -> Path:
    """This user's folder with a short path: a Unix socket's path is limited to about 100 bytes.

    Raises EmbeddedError, with what to do, if there is no such folder.
    """
    socket = f"oversold-{os.getuid()}/0123456789012/.s.PGSQL.5432.lock"
    for base in (tempfile.gettempdir(), *SHORT_FOLDERS):
        if len(os.fsencode(Path(base, socket))) <= SOCKET_PATH and os.access(base, os.W_OK):
            break
    else:
        raise EmbeddedError(
            f"no folder is short enough for a socket: set TMPDIR={SHORT_FOLDERS[0]}"
        )
    folder = Path(base) / f"oversold-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EmbeddedError(explain(error)) from error
    if folder.stat().st_uid != os.getuid():
        raise EmbeddedError(f"{folder} belongs to another user: remove it, or set TMPDIR")
    return folder
