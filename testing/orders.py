"""The orders in which calls can take their turns, those with the fewest switches first."""

from collections.abc import Iterator
from math import factorial, prod

from .run import Run, switches


def count_orders(steps: list[int]) -> int:
    """Return the number of orders: 20 for two calls of three steps each.

    Args:
        steps: The number of steps of each call.
    """
    return factorial(sum(steps)) // prod(factorial(number) for number in steps)


def orders(steps: list[int], limit: int) -> list[str]:
    """Return the orders, those with the fewest switches first.

    A race that needs few switches is the easiest to read. Musuvathi and Qadeer (PLDI 2007) bound
    the switches in the same way: most races need two.

    Args:
        steps: The number of steps of each call.
        limit: The maximum number of orders to return.

    Returns:
        Schedules such as `AABB`, with one letter for each turn.
    """
    schedules: list[str] = []
    for bound in range(len(steps) - 1, sum(steps)):
        for schedule in _with_switches(tuple(steps), "", bound):
            schedules.append(schedule)
            if len(schedules) == limit:
                return schedules
    return schedules


def _with_switches(remaining: tuple[int, ...], prefix: str, bound: int) -> Iterator[str]:
    """Yield the orders that begin with `prefix` and have exactly `bound` switches."""
    switch_count = switches(prefix)
    if switch_count > bound:
        return
    if not any(remaining):
        if switch_count == bound:
            yield prefix
        return
    for number, steps in enumerate(remaining):
        if steps:
            after_step = list(remaining)
            after_step[number] = steps - 1
            yield from _with_switches(tuple(after_step), prefix + name_of(number), bound)


def name_of(number: int) -> str:
    """Return the name of a call: `A` for 0, `B` for 1, and so on."""
    return chr(ord("A") + number)


class CompletedOrders:
    """The orders that were run. They show whether another schedule would lead to one of them.

    The turn of a call that waits or has ended is passed over, so several schedules may lead to the
    same order.
    """

    def __init__(self) -> None:
        """Start without any order."""
        self._turns: dict[tuple[str, str], str] = {}
        self._complete_traces: set[str] = set()

    def add(self, run: Run) -> None:
        """Remember the turns of a run."""
        for turn, trace in run.turns.items():
            self._turns.setdefault(turn, trace)
        self._complete_traces.add(run.trace)

    def has(self, schedule: str) -> bool:
        """Return whether every turn of the schedule is known, up to the end of all calls."""
        trace: str | None = ""
        for name in schedule:
            if trace is not None:
                trace = self._turns.get((trace, name))
        # The schedule is over; Driver.run then gives turns to each call until it has ended.
        while trace is not None and trace not in self._complete_traces:
            trace_before = trace
            for name in sorted(set(schedule)):
                trace = self._exhaust(trace, name)
            if trace == trace_before:
                return False
        return trace is not None

    def _exhaust(self, trace: str | None, name: str) -> str | None:
        """Follow the turns of one call until it does not move; None if a turn is unknown."""
        while trace is not None:
            next_trace = self._turns.get((trace, name))
            if next_trace == trace:
                break
            trace = next_trace
        return trace
