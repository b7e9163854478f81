"""The options of a rush and their bounds."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

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


def whole(least: int, most: int) -> Parse:
    """A parser of whole numbers, as `number` is of others."""
    return number(least, most, int)


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
