"""Parsers of the options of a rush, with their bounds."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from functools import partial
from typing import Any

Parser = Callable[[str], Any]


def make_number_parser(minimum: float, maximum: float, number_type: type = float) -> Parser:
    """Return a parser of numbers from `minimum` to `maximum`.

    For any other text the parser raises ArgumentTypeError, with the bounds in its message.
    """
    is_whole = number_type is int
    # Digits only: int() and float() would also accept `1_000`, `nan` and numbers of any length.
    pattern = r"[0-9]{1,12}" if is_whole else r"[0-9]{1,9}(\.[0-9]{1,9})?"
    description = "a whole number" if is_whole else "a number"

    def parse(text: str) -> Any:
        if not re.fullmatch(pattern, text) or not minimum <= number_type(text) <= maximum:
            raise ArgumentTypeError(
                f"{text[:64]!r} is not {description} from {minimum:.12g} to {maximum:.12g}"
            )
        return number_type(text)

    return parse


make_whole_number_parser = partial(make_number_parser, number_type=int)


def parse_name(text: str) -> str:
    """Return the name of a product or a strategy. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", text):
        raise ArgumentTypeError(f"{text[:64]!r} is not a name of 1 to 64 letters, digits, - and _")
    return text


parse_buyer_count = make_whole_number_parser(1, 20_000)
#: The parsers of a rush's options, by option. The shop has the same bounds for the stock, the hold
#: and the product.
RUSH_OPTION_PARSERS: dict[str, Parser] = {
    "lock": parse_name,
    "stock": make_whole_number_parser(0, 1_000_000),
    "hold_ms": make_whole_number_parser(0, 5_000),
    "product": parse_name,
    "deadline": make_number_parser(0.1, 3_600),
}
