"""Connections within this machine: free ports, no proxy, a folder for sockets."""

import os
import random
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from servers.server_errors import EmbeddedError, advise_on_error

LOOPBACK = ("127.0.0.1", "localhost")
#: Length of a Unix socket's path that every system accepts.
MAX_SOCKET_PATH_BYTES = 100
#: Ports for servers. Systems use higher ports for outgoing connections: from 32768 on Linux.
SERVER_PORTS = range(20_000, 32_000)
#: Number of these ports that are tried before the system chooses one.
PORTS_TO_TRY = 20
#: Ports that find_free_port() has returned. A server may not have opened its port yet when the port
#: of the next server is chosen.
_returned_ports: set[int] = set()
#: Folders to try if the path of the usual folder is too long for a socket.
SHORT_FOLDERS = ["/tmp", "/var/tmp"]


def exempt_loopback_from_proxies() -> None:
    """Add this machine to no_proxy, for this process and the processes that it starts.

    Otherwise, if http_proxy is set, requests to 127.0.0.1 would go to that proxy.
    """
    no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [name.strip() for name in no_proxy.split(",") if name.strip()]
    if "*" not in names:
        names += [name for name in LOOPBACK if name not in names]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)


def find_free_port(preferred: int = 0) -> int:
    """Return the preferred port if it is free, otherwise any free port.

    The function tries PORTS_TO_TRY random ports of SERVER_PORTS, but no port that it has returned
    before. If none of them is free, the system chooses a port. An outgoing connection may take that
    port before the server listens.
    """
    unused_ports = sorted(set(SERVER_PORTS) - _returned_ports)
    candidates = random.SystemRandom().sample(unused_ports, k=min(PORTS_TO_TRY, len(unused_ports)))
    if preferred:
        candidates.insert(0, preferred)
    for port in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _returned_ports.add(port)
                return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_runtime_folder() -> Path:
    """Return a private folder of this user for sockets, and create it if it is missing.

    Its path is short, because the path of a Unix socket is limited to about 100 bytes. Raises
    EmbeddedError, with advice, if no path is short enough, if the folder cannot be created or is a
    link, or if other users own it or may write to it.
    """
    # Each server has its own folder in this one. The digits stand for the longest folder name.
    longest_path = f"oversold-{os.getuid()}/0123456789012/.s.PGSQL.5432.lock"
    for base in [tempfile.gettempdir()] + SHORT_FOLDERS:
        is_short = len(os.fsencode(Path(base, longest_path))) <= MAX_SOCKET_PATH_BYTES
        if is_short and os.access(base, os.W_OK):
            break
    else:
        raise EmbeddedError(
            f"no folder has a path short enough for a socket: set TMPDIR={SHORT_FOLDERS[0]}"
        )
    folder = Path(base) / f"oversold-{os.getuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = os.lstat(folder)
    except OSError as error:
        raise EmbeddedError(advise_on_error(error)) from error
    # Other users can write to `base`, so they may have created something with this name.
    if not stat.S_ISDIR(status.st_mode):
        raise EmbeddedError(f"{folder} is not a folder: remove it, or set TMPDIR")
    if status.st_uid != os.getuid():
        raise EmbeddedError(f"{folder} belongs to another user: remove it, or set TMPDIR")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EmbeddedError(
            f"{folder} may be written by other users: chmod go-w {folder}, or set TMPDIR"
        )
    return folder
