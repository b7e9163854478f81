"""The errors of the servers, and advice on a file that was refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class EmbeddedError(RuntimeError):
    """An embedded server did not start. The message names its log and says what to do."""


class NotReady(EmbeddedError):
    """A process ended or did not answer in time. The message has the end of its log."""


def with_reason(log: str) -> str:
    """The end of a server's log; with what to do as its last line, where the disk was full."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return f"{log}\n{explain(full)}" if str(full.strerror) in log else log


def explain(error: OSError) -> str:
    """What to do about a file that could not be written or read, in one sentence."""
    where = str(error.filename or "the disk")
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"no space is left for {where}: make room there and start again"
        case errno.EROFS:
            return f"{where} is on a read-only file system: work in a copy that you may write to"
        case errno.EACCES | errno.EPERM:
            return f"{where} {_whose(where)}"
        case errno.EMFILE | errno.ENFILE:
            return "too many open files: raise the limit, as in ulimit -n 4096"
        case _:
            return f"{error}: see if make doctor knows why"


def _whose(where: str) -> str:
    """Who owns the file, or the nearest folder above it that is there, and what to do."""
    path = Path(where)
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    try:
        mine = path.lstat().st_uid == os.getuid()
    except OSError:
        mine = False
    if mine:
        return f"may not be written: chmod u+w {path}, or work in another copy"
    return f"belongs to another user: work as that user, or remove {_removable(path)}"


def _removable(path: Path) -> Path:
    """var/ or results/ where the path is in one of these: all in them can be made again."""
    for folder in (path, *path.parents):
        if folder.name in ("var", "results"):
            return folder
    return path
