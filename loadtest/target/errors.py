"""What is wrong with a target, and what to do about it."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from loadtest.stack.client import ShopUnreachable

T = TypeVar("T")
#: Characters of an answer that a message shows.
EXCERPT = 120


class TargetError(ShopUnreachable):
    """A target cannot be used, or its shop does not answer. The message says what to do."""


def call(target: object, method: Callable[..., T], *arguments: Any) -> T:
    """Call a method that the author of a target wrote.

    Raises TargetError, with the line, for whatever the method raises; a ShopUnreachable as it is.
    """
    try:
        return method(*arguments)
    except ShopUnreachable:
        raise
    except Exception as error:  # any: the code is not ours
        raise wrong(target, method.__name__, error) from error


def wrong(target: object, method: str, error: Exception, note: str = "") -> TargetError:
    """The error that says which line of the target's file raised what."""
    file = file_of(target)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == file]  # fmt: skip
    where = f"{Path(file).name}, line {lines[-1]}" if lines else Path(file).name
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return TargetError(f"{where}: {method}() raised {what}. {note}Repair it, and run again")


def file_of(target: object) -> str:
    """The file that a target's class stands in."""
    return str(getattr(target, "file", "")) or type(target).__module__


def excerpt(response: Any) -> str:
    """The beginning of an answer, on one line, with its status."""
    kind = str((response.headers or {}).get("Content-Type", "no type")).partition(";")[0]
    text = " ".join(str(response.text or "").split())
    shown = text if len(text) <= EXCERPT else text[:EXCERPT] + " ..."
    return f"{response.status_code}, {kind}: {shown!r}"
