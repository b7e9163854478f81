"""The errors of the servers, and advice on a file that was refused."""

import errno
import os


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
            return f"{where} may not be written: work as the user who made it, or in another copy"
        case errno.ENOTDIR | errno.EISDIR:
            where = str(error.filename2 or where)
            return f"{where} is not writable ({error.strerror}): move what is in its way elsewhere"
        case errno.EMFILE | errno.ENFILE:
            return "too many open files: raise the limit, as in ulimit -n 4096"
        case _:
            return f"{error}: make doctor may know why"
