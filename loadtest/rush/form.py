"""What may be asked of a rush, and within which bounds: on the command line and over HTTP.

All other options of Locust are set on its command line only.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Parse = Callable[[str], Any]


class BadForm(ValueError):
    """A form asks for something that no form may ask for. The message says what may be."""


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


#: One millisecond more than the shop accepts. It refuses such a purchase before it asks a backend;
#: `bench` measures that.
REFUSED_HOLD_MS = 5_001
#: What a rush is. The shop has the same bounds for the stock and the product.
RUSH: dict[str, Parse] = {
    "lock": name,
    "stock": whole(0, 1_000_000),
    "hold_ms": whole(0, REFUSED_HOLD_MS),
    "product": name,
    "deadline": number(0.1, 3_600),
}
#: How many buyers, and how many of them are started in a second.
CROWD: dict[str, Parse] = {"user_count": whole(1, 20_000), "spawn_rate": number(0.01, 10_000)}
#: What Locust's own form sends each time. It is accepted as it is, and never changed.
FIXED = ("host", "run_time", "profile")


def parse(
    form: Mapping[str, Sequence[str]],
    *,
    allowed: Mapping[str, Parse],
    fixed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The values of a form, parsed. Raises BadForm.

    form     every name with all its values
    allowed  a parser for every name that may be given
    fixed    names that may be given too, with the only value that they may have
    """
    parsed = {}
    for field, values in form.items():
        if len(values) != 1:
            raise BadForm(f"{field[:64]} is given more than once")
        (value,) = values
        if field in allowed:
            try:
                parsed[field] = allowed[field](value)
            except ArgumentTypeError as error:
                raise BadForm(f"{field}: {error}") from error
        elif fixed is None or field not in fixed or value != fixed[field]:
            raise BadForm(
                f"{field[:64]} is set on Locust's command line alone; "
                f"a form may set {', '.join(allowed)}"
            )
    return parsed
