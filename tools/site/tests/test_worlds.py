"""The recorded worlds are whole, and agree with the matrix of the faults."""

import pytest

from tools.site import recorded_worlds, worlds
from tools.site.pages import recorded_faults
from tools.site.worlds import EVENTS, STRATEGIES, event_of, is_stuck, kept, oversells

#: Where the schedules say something else than the cell of the matrix, and why.
DEVIATIONS: dict[tuple[str, str], str] = {}


def test_every_strategy_is_recorded_with_its_events() -> None:
    recorded = kept()
    assert list(recorded) == list(STRATEGIES)
    for strategy, moves in recorded.items():
        events = {event_of(schedule) for schedule in worlds.whole_schedules(moves)}
        assert events == set(STRATEGIES[strategy]), strategy


def test_every_schedule_comes_to_an_end() -> None:
    """Both buyers have ended, or one was killed, or one waits forever."""
    for strategy, moves in kept().items():
        for schedule in worlds.whole_schedules(moves):
            turns = [moves[schedule[:length]] for length in range(1, len(schedule) + 1)]
            ended = {event[0] for turn in turns for event in turn["did"] if event[1] == "ends"}
            if worlds.KILL in schedule:
                ended.add("A")
            assert ended == {"A", "B"} or is_stuck(moves, schedule), (strategy, schedule)


def verdict_of(moves: worlds.Moves, event: str) -> str:
    """Return the worst verdict over the schedules of an event, in the words of the matrix."""
    schedules = [
        schedule for schedule in worlds.whole_schedules(moves) if event_of(schedule) == event
    ]
    if any(oversells(moves, schedule) for schedule in schedules):
        return "oversold"
    if any(is_stuck(moves, schedule) for schedule in schedules):
        return "deadlock"
    return "exact"


def test_schedules_agree_with_the_matrix() -> None:
    """A schedule that oversells, or waits forever, exists exactly where the matrix says so."""
    verdicts = {(run["lock"], run["fault"]): run["verdict"] for run in recorded_faults()["runs"]}
    deviations = {}
    for strategy, moves in kept().items():
        for event in filter(None, STRATEGIES[strategy]):
            cell = (strategy, EVENTS[event])
            if cell in verdicts and verdict_of(moves, event) != verdicts[cell]:
                deviations[cell] = f"{verdict_of(moves, event)}, not {verdicts[cell]}"
    assert deviations.keys() == DEVIATIONS.keys(), deviations


def test_differing_schedule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = kept()
    monkeypatch.setattr(recorded_worlds, "record", lambda names: [("none", recorded["none"])])
    assert recorded_worlds.main(["compare", "none"]) == 0
    changed = {**recorded["none"], "A": {"did": [], "state": [1, 0, ""]}}
    monkeypatch.setattr(recorded_worlds, "record", lambda names: [("none", changed)])
    assert recorded_worlds.main(["compare", "none"]) == 1
