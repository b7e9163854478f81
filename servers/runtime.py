"""A folder of this user's with a short path."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from servers.errors import EmbeddedError, explain

#: Bytes that the path of a Unix socket may have on every system.
SOCKET_PATH = 100
#: Where the folder may be if the usual one is too deep for a socket.
SHORT_FOLDERS = ("/tmp", "/var/tmp")


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
