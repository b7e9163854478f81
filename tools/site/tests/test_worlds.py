"""The recorded worlds are complete, and agree with the matrix of the faults.

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

#: The cells of the matrix with another verdict than the schedules -> the reason. There are none.
DEVIATIONS: dict[Cell, str] = {}
#: The recorded strategies and events without a cell in the matrix -> the reason.
NOT_IN_MATRIX: dict[Cell, str] = {
    ("none", "crash"): "the matrix of the faults leaves out what any rush breaks",
}


def test_every_world_is_recorded_with_its_events() -> None:
    """A recording has moves with each event of its world, and a group of schedules for each."""
    recordings = read_worlds()
    assert list(recordings) == list(WORLDS)
    for name, recording in recordings.items():
        events = {find_outside_event(turns) for turns in recording["moves"]}
        assert events == set(WORLDS[name].events), name
        event_names = [FAULTS_BY_EVENT.get(event, "no event") for event in WORLDS[name].events]
        assert list(recording["schedules"]) == event_names


def test_sample_has_at_least_200_schedules() -> None:
    """test_worlds_live.py plays the schedules of the sample again."""
    assert sum(len(recorded_worlds.choose_sample(moves)) for moves in read_moves().values()) >= 200


def test_every_schedule_comes_to_an_end() -> None:
    """At the end, each buyer has ended its purchase or was killed, or a buyer waits forever."""
    for name, moves in read_moves().items():
        for schedule in worlds.list_whole_schedules(moves):
            turns = [moves[schedule[:length]] for length in range(1, len(schedule) + 1)]
            ended = {event[0] for turn in turns for event in turn["did"] if event[1] == "ends"}
            if worlds.KILL in schedule:
                ended.add("A")
            assert ended == {"A", "B"} or is_stuck(moves, schedule), (name, schedule)


def find_worst_verdict(world: World, moves: worlds.Moves, event: str) -> str:
    """Return the worst verdict of all schedules in which this event happens."""
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
    return {(run["lock"], run["fault"]): run["verdict"] for run in read_recorded_faults()["runs"]}


def read_verdicts_of_the_docs() -> dict[Cell, str]:
    """Return the verdict of each cell (strategy, fault) in the first table of docs/faults.md."""
    table = (ROOT / "docs" / "faults.md").read_text().split("\n\n")[1]
    heads, _, *rows = [line.strip("|").split("|") for line in table.splitlines()]
    return {
        (row[0].strip(" `"), head.strip()): verdict.strip(" *").lower()
        for row in rows
        for head, verdict in zip(heads[1:], row[1:], strict=True)
        if verdict.strip()
    }


@pytest.mark.parametrize("read_verdicts", [read_verdicts_of_the_site, read_verdicts_of_the_docs])
def test_schedules_agree_with_the_matrix(read_verdicts: Callable[[], dict[Cell, str]]) -> None:
    """Of the schedules with an outside event, the worst has the verdict of the matching fault.

    A fault is, for example, `pause`. The matrix is the table of the strategies and the faults.
    """
    verdicts = read_verdicts()
    deviations = {}
    missing = set()
    compared = set()
    for name, moves in read_moves().items():
        world = WORLDS[name]
        events = [event for event in world.events if event != NO_EVENT]
        for event in events:
            cell = (world.strategy, FAULTS_BY_EVENT[event])
            if cell not in verdicts:
                missing.add(cell)
                continue
            compared.add(cell)
            verdict = find_worst_verdict(world, moves, event)
            if verdict != verdicts[cell]:
                deviations[cell] = f"{verdict}, not {verdicts[cell]}"
    assert deviations.keys() == DEVIATIONS.keys(), deviations
    assert missing == NOT_IN_MATRIX.keys()
    assert len(compared) > 25


def test_world_whose_moves_differ_is_named() -> None:
    recorded = read_moves()
    same = {"none": {"moves": recorded["none"]}}
    assert recorded_worlds.find_differing_worlds(same) == []
    # In the changed recording A does nothing in its first move.
    changed = {**recorded["none"], "A": {"did": [], "state": [1, 0, "", ""]}}
    assert recorded_worlds.find_differing_worlds({"none": {"moves": changed}}) == ["none"]


def test_schedule_is_played_again_with_a_longer_ttl_on_a_slow_machine() -> None:
    """Here every ttl but the longest is too short."""
    ttls = []

    def play_once(ttl: float) -> float:
        ttls.append(ttl)
        if ttl < SHORT_TTLS_SECONDS[-1]:
            raise TtlTooShort
        return ttl

    assert play_with_long_enough_ttl(play_once) == SHORT_TTLS_SECONDS[-1]
    assert ttls == list(SHORT_TTLS_SECONDS)


def test_machine_that_is_too_slow_for_every_ttl_is_an_error() -> None:
    def play_once(ttl: float) -> None:
        raise TtlTooShort

    with pytest.raises(TtlTooShort):
        play_with_long_enough_ttl(play_once)
