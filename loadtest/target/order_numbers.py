"""The spellings of an order number: `#000101` in an answer may be `101` in orders()."""

import re
from collections.abc import Callable, Collection

Number = int | str
Spelling = Callable[[Number], Number]


def as_written(number: object) -> Number:
    """Return a whole number as an int; a text with leading zeros or other characters stays a text.

    Some shops have other texts instead of numbers, such as UUIDs.
    """
    text = str(number)
    if text.isdecimal() and text == str(int(text)):
        return int(text)
    return text


def as_value(number: object) -> Number:
    """Return a number without leading zeros, `#` or decimals: 000101, #101 and 101.0 are 101.

    A UUID becomes its 32 hexadecimal digits in lower case, without dashes and braces. Any other
    text becomes lower case, without spaces, # and braces at its ends.
    """
    text = str(number).strip().strip("#{}").casefold()
    if re.fullmatch(r"\d+(\.0+)?", text):
        return int(text.partition(".")[0])
    digits = text.replace("-", "")
    if re.fullmatch(r"[0-9a-f]{32}", digits):
        return digits
    return text


def as_serial(number: object) -> Number:
    """Return the digits at the end of a reference as a number: KITE-000101 is 101.

    If there are no digits at the end, return as_value(number).
    """
    serial = re.search(r"\d+\Z", str(as_value(number)))
    if serial is None:
        return as_value(number)
    return int(serial[0])


#: The spellings, from the strictest to the loosest.
SPELLINGS: tuple[Spelling, ...] = (as_written, as_value, as_serial)


def find_common_spelling(
    answered_numbers: Collection[Number], listed_numbers: Collection[Number]
) -> Spelling | None:
    """Return the strictest spelling that makes an answered and a listed number equal, or None.

    A spelling does not count if it makes two answered numbers or two listed numbers equal that are
    written differently.

    answered_numbers  the numbers in the answers
    listed_numbers    the numbers in orders()
    """
    for spelling in SPELLINGS:
        spelled_answers = set(map(spelling, answered_numbers))
        spelled_list = set(map(spelling, listed_numbers))
        keeps_answers_apart = len(spelled_answers) == len(set(map(as_written, answered_numbers)))
        keeps_list_apart = len(spelled_list) == len(set(map(as_written, listed_numbers)))
        has_common_number = not spelled_answers.isdisjoint(spelled_list)
        if keeps_answers_apart and keeps_list_apart and has_common_number:
            return spelling
    return None
