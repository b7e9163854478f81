"""The levels agree with the recording: their goals can be reached, and what they call impossible
cannot."""

import pytest

from tools.site import level_page
from tools.site.levels import Level, levels
from tools.site.narration import narrate
from tools.site.pages import recorded_faults
from tools.site.worlds import WORLDS, Moves, read_moves, whole_schedules

LEVELS = levels()
RECORDED = read_moves()


def moves_of(level: Level) -> Moves:
    return RECORDED[level.world]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_goal_can_be_reached(level: Level) -> None:
    ways = level.reached_by(moves_of(level), level.goal)
    assert ways
    assert len(ways[0]) == min(map(len, ways))


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_wrong_way_does_not_reach_the_goal(level: Level) -> None:
    """A level names a whole schedule that does not, unless every one reaches the goal."""
    moves = moves_of(level)
    ways = tuple(level.reached_by(moves, level.goal))
    schedules = whole_schedules(level.offered(moves))
    not_reaching = [schedule for schedule in schedules if not schedule.startswith(ways)]
    assert level.wrong in (not_reaching or [""])


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_level_names_an_offered_event(level: Level) -> None:
    assert set(level.events) <= set(WORLDS[level.world].events)
    assert level.task.endswith(".")


@pytest.mark.parametrize(
    "level", [level for level in LEVELS if level.impossible], ids=lambda level: level.slug
)
def test_impossible_is_not_recorded(level: Level) -> None:
    """Not by any event of its world."""
    assert level.reached_by(moves_of(level), level.impossible) == []


def test_levels_have_one_slug_each() -> None:
    slugs = [level.slug for level in LEVELS]
    assert len(set(slugs)) == len(slugs)
    assert not set(slugs) & set(WORLDS), "a world's name is the address of its free play"


def test_named_fault_has_the_verdict_of_the_level() -> None:
    """The cell that a level links to is oversold or a deadlock where the level's goal is."""
    verdicts = {
        f"{run['lock']}/{run['fault']}": run["verdict"] for run in recorded_faults()["runs"]
    }
    expected = {"oversold": "oversold", "foreign-release": "oversold", "stuck": "deadlock"}
    for level in LEVELS:
        if level.fault:
            assert verdicts[level.fault] == expected.get(level.goal, "exact"), level.slug


def test_every_turn_is_narrated() -> None:
    """Each turn has a line, but for a wait of the world."""
    for name, moves in RECORDED.items():
        words = narrate(moves)
        assert set(words) == {"", *moves}
        silent = {key for key in moves if not words[key]["lines"] and key[-1] != "W"}
        assert silent == set(), name


def test_page_has_the_text_of_each_level() -> None:
    page = level_page.page()
    for level in LEVELS:
        assert f'id="text-{level.slug}"' in page
