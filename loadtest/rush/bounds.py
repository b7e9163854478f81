"""What may be asked of a rush, and within which bounds."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

Parse = Callable[[str], Any]


def whole(least: int, most: int) -> Parse:
    """A parser of whole numbers. It raises ArgumentTypeError, naming the bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text[:64]!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse


def number(least: float, most: float) -> Parse:
    """A parser of numbers. It raises ArgumentTypeError, naming the bounds."""

    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not least <= float(text) <= most:
            raise ArgumentTypeError(f"{text[:64]!r} is not a number from {least:g} to {most:g}")
        return float(text)

    return parse


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
