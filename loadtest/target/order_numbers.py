"""Normalizers of order numbers, which a shop may write in several ways.

For example, the shop may answer a buyer with the number `#000101`, and the target's orders() may
list the same order as `101`. A normalizer is a function that turns both into the same number.
"""

import re
from collections.abc import Callable, Collection

Number = int | str
Normalizer = Callable[[Number], Number]


def parse_canonical_number(number: object) -> Number:
    """Return a number that is written with digits only, without leading zeros, as an int.

    Any other number stays a text, such as `007` or a UUID.
    """
    text = str(number)
    if text.isdecimal() and text == str(int(text)):
        return int(text)
    return text


def strip_number_format(number: object) -> Number:
    """Return a number without leading zeros, `#` or zeros after the point, as an int.

    000101, #101 and 101.0 become 101. A UUID becomes its 32 hexadecimal digits in lower case,
    without dashes and braces. Any other text is returned in lower case, without the spaces, `#` and
    braces at its ends.
    """
    text = str(number).strip().strip("#{}").casefold()
    if re.fullmatch(r"\d+(\.0+)?", text):
        return int(text.partition(".")[0])
    digits = text.replace("-", "")
    if re.fullmatch(r"[0-9a-f]{32}", digits):
        return digits
    return text


def get_trailing_number(number: object) -> Number:
    """Return the digits at the end of an order number as an int: KITE-000101 becomes 101.

    If there are no digits at the end, return strip_number_format(number).
    """
    trailing_digits = re.search(r"\d+\Z", str(strip_number_format(number)))
    if trailing_digits is None:
        return strip_number_format(number)
    return int(trailing_digits[0])


#: The normalizers, the strictest first: each one makes more numbers equal than the one before it.
NORMALIZERS: tuple[Normalizer, ...] = (
    parse_canonical_number,
    strip_number_format,
    get_trailing_number,
)


def find_common_normalizer(
    answered_numbers: Collection[Number], listed_numbers: Collection[Number]
) -> Normalizer | None:
    """Return the strictest normalizer by which an answered number equals a listed one, or None.

    A normalizer is rejected if two different answered numbers, or two different listed numbers,
    become equal: it could confuse the orders of two buyers.

    answered_numbers  the numbers in the answers
    listed_numbers    the numbers in orders()
    """
    for normalizer in NORMALIZERS:
        keeps_numbers_distinct = all(
            _count_distinct(normalizer, numbers) == _count_distinct(parse_canonical_number, numbers)
            for numbers in (answered_numbers, listed_numbers)
        )
        normalized_answers = set(map(normalizer, answered_numbers))
        has_common_number = not normalized_answers.isdisjoint(map(normalizer, listed_numbers))
        if keeps_numbers_distinct and has_common_number:
            return normalizer
    return None


def _count_distinct(normalizer: Normalizer, numbers: Collection[Number]) -> int:
    """Return how many different numbers there are after normalization."""
    return len(set(map(normalizer, numbers)))
