"""The recorded worlds are complete, and agree with the verdicts of `make faults`.

A world is a strategy with its stock and its outside events (tools/site/worlds.py).
"""

from collections.abc import Callable

import pytest

from servers.embedded import ROOT
from tools.site import worlds
from tools.site.pages import read_recorded_faults
from tools.site.recorder import recorded_worlds
from tools.site.recorder.world import SHORT_TTLS_SECONDS, TtlTooShort, play_with_long_enough_ttl
from tools.site.worlds import (
    FAULTS_BY_EVENT,
    NO_EVENT,
    WORLDS,
    World,
    find_outside_event,
    is_stuck,
    oversells,
    read_moves,
    read_worlds,
)

#: A strategy and a fault.
Cell = tuple[str, str]

#: Cells whose verdict in `make faults` differs from that of the schedules -> the reason. There are
#: none.
DEVIATIONS: dict[Cell, str] = {}
#: Cells that have recorded schedules and that `make faults` does not run -> the reason.
CELLS_WITHOUT_RUN: dict[Cell, str] = {
    ("none", "crash"): "`make faults` leaves out strategies that any rush breaks",
}
#: The least number of cells that must be compared.
MIN_COMPARED_CELLS = 26
#: The least number of schedules in the sample that test_worlds_live.py plays again.
MIN_SAMPLE_SIZE = 200


def test_every_world_is_recorded_with_its_events() -> None:
    """The recording of a world has moves with each of the world's outside events.

    It also has the number of schedules with each event.
    """
    recordings = read_worlds()
    assert list(recordings) == list(WORLDS)
    for name, recording in recordings.items():
        events = {find_outside_event(turns_made) for turns_made in recording["moves"]}
        assert events == set(WORLDS[name].events), name
        event_names = [FAULTS_BY_EVENT.get(event, "no event") for event in WORLDS[name].events]
        assert list(recording["schedules"]) == event_names


def test_sample_is_large_enough() -> None:
    sample_sizes = [len(recorded_worlds.choose_sample(moves)) for moves in read_moves().values()]
    assert sum(sample_sizes) >= MIN_SAMPLE_SIZE


def test_every_schedule_is_recorded_to_its_end() -> None:
    """At the end, each buyer has ended its purchase or was killed, or a buyer waits forever."""
    for name, moves in read_moves().items():
        for schedule in worlds.list_whole_schedules(moves):
            finished_buyers = {
                buyer
                for beginning in worlds.list_beginnings(schedule)
                for buyer, kind, *_ in moves[beginning]["did"]
                if kind == "ends"
            }
            if worlds.KILL in schedule:
                finished_buyers.add("A")
            assert finished_buyers == {"A", "B"} or is_stuck(moves, schedule), (name, schedule)


def find_worst_verdict(world: World, moves: worlds.Moves, event: str) -> str:
    """Return the worst verdict of all schedules of a world that have this outside event.

    A world is a strategy with its stock and its outside events.
    """
    schedules = [
        schedule
        for schedule in worlds.list_whole_schedules(moves)
        if find_outside_event(schedule) == event
    ]
    if any(oversells(moves, schedule, world.units) for schedule in schedules):
        return "oversold"
    if any(is_stuck(moves, schedule) for schedule in schedules):
        return "deadlock"
    return "exact"


def read_verdicts_of_the_site() -> dict[Cell, str]:
    """Return the verdict of each cell (strategy, fault) in the recording of `make faults`."""
    return {(run["lock"], run["fault"]): run["verdict"] for run in read_recorded_faults()["runs"]}


def read_verdicts_of_the_docs() -> dict[Cell, str]:
    """Return the verdict of each cell (strategy, fault) in the first table of docs/faults.md."""
    table = (ROOT / "docs" / "faults.md").read_text().split("\n\n")[1]
    headings, _, *rows = [line.strip("|").split("|") for line in table.splitlines()]
    _, *faults = headings
    return {
        (strategy.strip(" `"), fault.strip()): verdict.strip(" *").lower()
        for strategy, *verdicts in rows
        for fault, verdict in zip(faults, verdicts, strict=True)
        if verdict.strip()
    }


@pytest.mark.parametrize("read_verdicts", [read_verdicts_of_the_site, read_verdicts_of_the_docs])
def test_schedules_agree_with_the_faults(read_verdicts: Callable[[], dict[Cell, str]]) -> None:
    """The worst schedule with an outside event has the verdict of the corresponding fault.

    For example, the outside event PAUSE pauses buyer A between two moves, and the fault `pause`
    pauses a buyer in a load test.
    """
    verdicts = read_verdicts()
    deviations = {}
    cells_without_verdict = set()
    compared_cells = set()
    for name, moves in read_moves().items():
        world = WORLDS[name]
        events = [event for event in world.events if event != NO_EVENT]
        for event in events:
            cell = (world.strategy, FAULTS_BY_EVENT[event])
            if cell not in verdicts:
                cells_without_verdict.add(cell)
                continue
            compared_cells.add(cell)
            verdict = find_worst_verdict(world, moves, event)
            if verdict != verdicts[cell]:
                deviations[cell] = f"{verdict}, not {verdicts[cell]}"
    assert deviations.keys() == DEVIATIONS.keys(), deviations
    assert cells_without_verdict == CELLS_WITHOUT_RUN.keys()
    assert len(compared_cells) >= MIN_COMPARED_CELLS


def test_world_whose_moves_differ_is_returned() -> None:
    """A recording in which A does nothing in its first move differs from the saved one."""
    saved_moves = read_moves()["none"]
    equal_recordings = {"none": {"moves": saved_moves}}
    assert recorded_worlds.find_differing_worlds(equal_recordings) == []
    changed_moves = {**saved_moves, "A": {"did": [], "state": [1, 0, "", ""]}}
    changed_recordings = {"none": {"moves": changed_moves}}
    assert recorded_worlds.find_differing_worlds(changed_recordings) == ["none"]


def test_schedule_is_played_again_with_a_longer_ttl_on_a_slow_machine() -> None:
    """Each ttl but the longest is too short for `play_once`."""
    ttls = []

    def play_once(ttl: float) -> float:
        ttls.append(ttl)
        if ttl < SHORT_TTLS_SECONDS[-1]:
            raise TtlTooShort
        return ttl

    assert play_with_long_enough_ttl(play_once) == SHORT_TTLS_SECONDS[-1]
    assert ttls == list(SHORT_TTLS_SECONDS)


def test_machine_that_is_too_slow_for_every_ttl_is_an_error() -> None:
    """Even the longest ttl is too short for `play_once`."""

    def play_once(ttl: float) -> None:
        raise TtlTooShort

    with pytest.raises(TtlTooShort):
        play_with_long_enough_ttl(play_once)
