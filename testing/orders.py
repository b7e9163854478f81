"""Every order in which calls of so many steps can take their turns, simplest first."""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial, prod

from .run import switches


def count(steps: list[int]) -> int:
    """How many orders there are: 20 for two calls of three steps each."""
    return factorial(sum(steps)) // prod(factorial(each) for each in steps)


def orders(steps: list[int], limit: int) -> list[str]:
    """At most `limit` of them, those with the fewest switches first: a race that needs only one
    switch more than running one after another is the easiest to read.

    The bound on switches is Musuvathi and Qadeer's (PLDI 2007): most races need two.
    """
    found: list[str] = []
    for bound in range(len(steps) - 1, sum(steps)):
        for schedule in _with_switches(tuple(steps), "", bound):
            found.append(schedule)
            if len(found) == limit:
                return found
    return found


def _with_switches(left: tuple[int, ...], so_far: str, bound: int) -> Iterator[str]:
    """The orders that go on from `so_far` and switch exactly `bound` times in all."""
    used = switches(so_far)
    if used > bound:
        return
    if not any(left):
        if used == bound:
            yield so_far
        return
    for number, steps in enumerate(left):
        if steps:
            rest = (*left[:number], steps - 1, *left[number + 1 :])
            yield from _with_switches(rest, so_far + name_of(number), bound)


def name_of(number: int) -> str:
    """A, B, C, ..."""
    return chr(ord("A") + number)
