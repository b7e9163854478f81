"""Order numbers as a shop means them: an answer may spell a number otherwise than orders() does."""

import re
from collections.abc import Callable, Collection

Number = int | str
Spelling = Callable[[Number], Number]


def as_written(number: object) -> Number:
    """Return a number that is written as text as that number, and any other text as it is: a
    database may give a UUID."""
    text = str(number)
    return int(text) if text.isdecimal() and text == str(int(text)) else text


def as_value(number: object) -> Number:
    """Return what a number means without its padding: 000101, #101 and 101.0 are 101, and a UUID
    is its 32 digits, with dashes or without, in capitals or not."""
    text = str(number).strip().strip("#{}").casefold()
    if re.fullmatch(r"\d+(\.0+)?", text):
        return int(text.partition(".")[0])
    digits = text.replace("-", "")
    return digits if re.fullmatch(r"[0-9a-f]{32}", digits) else text


def as_serial(number: object) -> Number:
    """Return the last digits of a reference as a number: KITE-000101 is 101."""
    serial = re.search(r"\d+\Z", str(as_value(number)))
    return int(serial[0]) if serial else as_value(number)


#: From the strictest to the loosest.
SPELLINGS: tuple[Spelling, ...] = (as_written, as_value, as_serial)


def common_spelling(answered: Collection[Number], listed: Collection[Number]) -> Spelling | None:
    """Return the strictest spelling in which an answered number is one of those that are listed, or
    None. A spelling that makes two numbers one is none."""
    for spelling in SPELLINGS:
        answers = {spelling(number) for number in answered}
        there = {spelling(number) for number in listed}
        is_clear = len(answers) == len({*map(as_written, answered)})
        if is_clear and len(there) == len({*map(as_written, listed)}) and answers & there:
            return spelling
    return None
