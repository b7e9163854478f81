"""The errors of the servers, and advice on files that cannot be read or written.

RuntimeError
└── EmbeddedError
    └── NotReady
"""

import errno
import os
from pathlib import Path

#: Free space below which PostgreSQL, which writes blocks of 8 KB, finds the disk full.
MIN_FREE_BYTES = 64 * 1024


class EmbeddedError(RuntimeError):
    """An embedded server did not start or does not answer. The message says what to do."""


class NotReady(EmbeddedError):
    """A process ended or did not answer in time. The message has the end of its log.

    summary  the first sentence of the message, without the log and the advice
    """

    def __init__(self, summary: str, details: str = "") -> None:
        super().__init__(f"{summary}{details}")
        self.summary = summary


def add_disk_advice(log_text: str) -> str:
    """Return the end of a server's log. If the disk was full, add a line with advice."""
    advice = advise_on_log(log_text)
    if advice:
        return f"{log_text}\n{advice}"
    return log_text


def advise_on_log(log_text: str) -> str:
    """Return what to do if a server's log says that the disk was full; otherwise an empty text."""
    message = os.strerror(errno.ENOSPC)
    if message in log_text:
        return advise_on_error(OSError(errno.ENOSPC, message))
    return ""


def advise_on_disk(folder: Path) -> str:
    """Return what to do if the disk of a folder is full; otherwise an empty text."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    if disk.f_blocks == 0 or disk.f_bavail * disk.f_frsize >= MIN_FREE_BYTES:
        return ""
    return advise_on_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)))


def advise_on_error(error: OSError) -> str:
    """Return a sentence that says why a file could not be written or read, and what to do."""
    path = str(error.filename or "the disk")
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            place = f"for {error.filename}" if error.filename else "on the disk"
            return f"no space is left {place}: make room there and start again"
        case errno.EROFS:
            return f"{path} is on a read-only file system: use a checkout that you can write to"
        case errno.EACCES | errno.EPERM:
            return (
                f"no permission to write {path}: run as the user who owns it, or use a checkout "
                "that you can write to"
            )
        case errno.ENOTDIR | errno.EISDIR:
            # A rename, such as that in registry(), has two paths. The second one is blocked.
            path = str(error.filename2 or path)
            return (
                f"{path} cannot be written ({error.strerror}): a file or folder blocks this path; "
                "move it away"
            )
        case errno.EMFILE | errno.ENFILE:
            return "too many open files: raise the limit, as in ulimit -n 4096"
        case _:
            return f"{error}: run `make doctor` to find the cause"
