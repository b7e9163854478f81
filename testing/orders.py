"""The orders in which calls can take their turns, those with the fewest switches first."""

from collections.abc import Iterator
from math import factorial, prod

from .run import Run, count_switches


def count_orders(step_counts: list[int]) -> int:
    """Return the number of orders: 20 for two calls of three steps each.

    Args:
        step_counts: The number of steps of each call.
    """
    return factorial(sum(step_counts)) // prod(factorial(count) for count in step_counts)


def list_orders(step_counts: list[int], limit: int) -> list[str]:
    """Return the orders, those with the fewest switches first.

    A race that needs few switches is the easiest to read. Musuvathi and Qadeer (PLDI 2007) bound
    the switches in the same way: most races need two.

    Args:
        step_counts: The number of steps of each call.
        limit: The maximum number of orders to return.

    Returns:
        Schedules such as `AABB`, with one letter for each turn.
    """
    schedules: list[str] = []
    for switch_count in range(len(step_counts) - 1, sum(step_counts)):
        for schedule in _generate_orders(tuple(step_counts), "", switch_count):
            schedules.append(schedule)
            if len(schedules) == limit:
                return schedules
    return schedules


def _generate_orders(
    remaining_steps: tuple[int, ...], prefix: str, switch_count: int
) -> Iterator[str]:
    """Yield the orders that begin with `prefix` and have exactly `switch_count` switches.

    Args:
        remaining_steps: The number of steps that each call has to make after the prefix.
        prefix: The first turns, such as `AAB`.
        switch_count: The number of switches in the whole order.
    """
    switches_so_far = count_switches(prefix)
    if switches_so_far > switch_count:
        return
    if not any(remaining_steps):
        if switches_so_far == switch_count:
            yield prefix
        return
    for number, step_count in enumerate(remaining_steps):
        if step_count:
            after_step = list(remaining_steps)
            after_step[number] = step_count - 1
            yield from _generate_orders(tuple(after_step), prefix + name_of(number), switch_count)


def name_of(number: int) -> str:
    """Return the name of a call: `A` for 0, `B` for 1, and so on."""
    return chr(ord("A") + number)


class CompletedOrders:
    """The orders that were run, to find out whether another schedule would repeat one of them.

    The turn of a call that waits or has ended is passed over, so several schedules may lead to the
    same order.
    """

    def __init__(self) -> None:
        """Start without any order."""
        #: As Run.turns, for all runs: the trace after a turn, by the trace before and the call.
        self._turns: dict[tuple[str, str], str] = {}
        self._complete_traces: set[str] = set()

    def add(self, run: Run) -> None:
        """Remember the turns of a run."""
        for turn, trace in run.turns.items():
            self._turns.setdefault(turn, trace)
        self._complete_traces.add(run.trace)

    def has(self, schedule: str) -> bool:
        """Return whether the schedule leads to the end of all calls by turns that are all known."""
        trace: str | None = ""  # None once a turn is unknown
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
