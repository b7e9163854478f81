"""The orders in which calls can take their turns, those with the fewest switches first.

An order, or schedule, is a word such as AABB. Each letter is a turn of the call with that name, in
which the call makes one step. A switch is a turn of another call than the turn before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import factorial, prod

from .run import Run


def count_orders(step_counts: list[int]) -> int:
    """Return the number of orders in which the calls can take turns: 20 for two calls of 3 steps.

    Args:
        step_counts: The number of steps of each call.
    """
    return factorial(sum(step_counts)) // prod(factorial(count) for count in step_counts)


def list_orders(step_counts: list[int], limit: int) -> list[str]:
    """Return the first of the orders that generate_orders() yields.

    Args:
        step_counts: The number of steps of each call.
        limit: The maximum number of orders to return.

    Returns:
        Schedules such as `AABB`, with one letter for each turn.
    """
    return list(islice(generate_orders(step_counts), max(limit, 0)))


def generate_orders(step_counts: list[int]) -> Iterator[str]:
    """Yield the orders in which the calls can take turns, those with the fewest switches first.

    A race that needs few switches is the easiest to read. Musuvathi and Qadeer (PLDI 2007) bound
    the switches in the same way: most races need two.

    Args:
        step_counts: The number of steps of each call.

    Yields:
        Schedules such as `AABB`, with one letter for each turn.
    """
    for switch_count in range(len(step_counts) - 1, sum(step_counts)):
        yield from _generate_orders_with(switch_count, step_counts)


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The first turns of an order, which can be completed in several ways.

    Attributes:
        schedule: The turns, such as `AAB`.
        switch_count: The number of switches in them.
        remaining_steps: The number of steps that each call has to make after them.
    """

    schedule: str
    switch_count: int
    remaining_steps: tuple[int, ...]

    def add_turn(self, number: int) -> "_Beginning":
        """Return this beginning with one more turn, that of the call with this number."""
        name = make_call_name(number)
        is_switch = self.schedule != "" and not self.schedule.endswith(name)
        steps_after = list(self.remaining_steps)
        steps_after[number] -= 1
        return _Beginning(self.schedule + name, self.switch_count + is_switch, tuple(steps_after))

    def can_reach(self, switch_count: int) -> bool:
        """Return whether an order with this beginning can have exactly this number of switches."""
        last_call = parse_call_name(self.schedule[-1])
        remaining_turns = sum(self.remaining_steps)
        fewest_further_switches = 0
        most_further_switches = remaining_turns
        for call, step_count in enumerate(self.remaining_steps):
            other_turns = remaining_turns - step_count
            # A switch lies between two turns, and at most one of them is a turn of this call. Each
            # remaining turn of the other calls has two sides, so it allows at most two switches.
            if call == last_call:
                most_further_switches = min(most_further_switches, 2 * other_turns)
            else:
                # The last turn of the beginning is another call's, too: it allows one more switch.
                most_further_switches = min(most_further_switches, 2 * other_turns + 1)
                if step_count > 0:
                    fewest_further_switches += 1
        further_switches = switch_count - self.switch_count
        return fewest_further_switches <= further_switches <= most_further_switches


def _generate_orders_with(switch_count: int, step_counts: list[int]) -> Iterator[str]:
    """Yield the orders that have exactly this number of switches, sorted alphabetically."""
    beginnings = [_Beginning("", 0, tuple(step_counts))]  # a stack: the last is extended next
    while beginnings:
        beginning = beginnings.pop()
        if not any(beginning.remaining_steps):
            yield beginning.schedule
            continue
        for number in reversed(range(len(step_counts))):
            if beginning.remaining_steps[number] > 0:
                longer_beginning = beginning.add_turn(number)
                if longer_beginning.can_reach(switch_count):
                    beginnings.append(longer_beginning)


def make_call_name(number: int) -> str:
    """Return the name of a call: `A` for 0, `B` for 1, and so on."""
    return chr(ord("A") + number)


def parse_call_name(name: str) -> int:
    """Return the number of the call with this name: 0 for `A`, 1 for `B`, and so on."""
    return ord(name) - ord("A")


class CompletedOrders:
    """The orders that were run, to find out whether another schedule would repeat one of them.

    The turn of a call that waits or has ended is skipped, so several schedules may lead to the
    same order. The class therefore remembers what each turn did: it maps the trace before the turn
    (the turns so far, as in Run.trace) to the trace after the turn.
    """

    def __init__(self) -> None:
        """Start without any order."""
        #: Maps the trace before a turn, and the name of the call, to the trace after the turn.
        #: A trace is the turns so far, as in Run.trace.
        self._turns: dict[tuple[str, str], str] = {}
        #: The traces of runs that have ended.
        self._complete_traces: set[str] = set()

    def add(self, run: Run) -> None:
        """Remember the turns of a run."""
        for turn, trace in run.turns.items():
            self._turns.setdefault(turn, trace)
        self._complete_traces.add(run.trace)

    def would_repeat(self, schedule: str) -> bool:
        """Return whether a run of this schedule would only repeat an earlier run.

        The turns of the schedule are looked up in the turns of earlier runs. The run would be a
        repetition if these turns lead to the end of an earlier run.
        """
        trace: str | None = ""  # the turns so far; None after a turn that no earlier run has made
        for call_name in schedule:
            if trace is not None:
                trace = self._turns.get((trace, call_name))
        # After the schedule, Driver.run gives turns to each call until it has ended.
        while trace is not None and trace not in self._complete_traces:
            trace_before = trace
            for call_name in sorted(set(schedule)):
                trace = self._give_all_turns_to(call_name, trace)
            if trace == trace_before:
                return False
        return trace is not None

    def _give_all_turns_to(self, call_name: str, trace: str | None) -> str | None:
        """Return the trace after further turns of this call, up to the first that moves no call.

        Return None if one of these turns was made in no earlier run.
        """
        while trace is not None:
            next_trace = self._turns.get((trace, call_name))
            if next_trace == trace:
                break
            trace = next_trace
        return trace
