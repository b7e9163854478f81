"""The bounds of a rush: of its options, and of the files that its buyers need."""

import re
import resource
from argparse import ArgumentTypeError
from collections.abc import Callable
from functools import partial
from typing import Any

from loadtest.stack.node import StackError

Parse = Callable[[str], Any]


def number(least: float, most: float, kind: type = float) -> Parse:
    """A parser of numbers. It raises ArgumentTypeError, naming the bounds."""
    form = r"[0-9]{1,12}" if kind is int else r"[0-9]{1,9}(\.[0-9]{1,9})?"
    words = "a whole number" if kind is int else "a number"

    def parse(text: str) -> Any:
        if not re.fullmatch(form, text) or not least <= kind(text) <= most:
            raise ArgumentTypeError(
                f"{text[:64]!r} is not {words} from {least:.12g} to {most:.12g}"
            )
        return kind(text)

    return parse


whole = partial(number, kind=int)


def name(text: str) -> str:
    """The name of a product or a lock. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", text):
        raise ArgumentTypeError(f"{text[:64]!r} is not 1 to 64 letters, digits, - and _")
    return text


BUYERS = whole(1, 20_000)
#: The options of a rush. The shop has the same bounds for the stock, the hold and the product.
RUSH: dict[str, Parse] = {
    "lock": name,
    "stock": whole(0, 1_000_000),
    "hold_ms": whole(0, 5_000),
    "product": name,
    "deadline": number(0.1, 3_600),
}
#: Files that a process has open besides its connections, of which each buyer is one: log, sockets,
#: libraries.
SPARE = 200


def allow(connections: int, *, what: str, otherwise: str) -> None:
    """Let this process, and those that it starts, open this many connections.

    what       whose they are, for the message
    otherwise  what to do instead of allowing more

    Raises StackError where this machine allows fewer.
    """
    needed = connections + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise StackError(
            f"{what} needs {needed} open files, and {hard} are allowed: {otherwise}, "
            f"or allow more (ulimit -n {needed})"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
