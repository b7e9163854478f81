"""Every order in which calls of a number of steps can take their turns, simplest first."""

from collections.abc import Iterator
from math import factorial, prod

from .run import Run, switches


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


class Seen:
    """The orders that were run: tells whether another one would be the same turns.

    A turn of a call that waits, or has ended, is passed over: several schedules may be one order.
    """

    def __init__(self) -> None:
        self._turns: dict[tuple[str, str], str] = {}
        self._whole: set[str] = set()

    def add(self, run: Run) -> None:
        for turn, after in run.turns.items():
            self._turns.setdefault(turn, after)
        self._whole.add(run.trace)

    def has(self, schedule: str) -> bool:
        """Whether every turn of it is known, up to the end of all calls."""
        trace: str | None = ""
        for name in schedule:
            if trace is not None:
                trace = self._turns.get((trace, name))
        while trace is not None and trace not in self._whole:  # as Driver.run goes on
            began = trace
            for name in sorted(set(schedule)):
                while trace is not None and (after := self._turns.get((trace, name))) != trace:
                    trace = after
            if trace == began:
                return False
        return trace is not None
