"""The levels agree with the recording: goals are reachable, impossible moves unrecorded."""

import pytest

from tools.site import level_page
from tools.site.levels import Level, levels
from tools.site.lock_state import lock_after, recorded_owner
from tools.site.narration import narrate
from tools.site.pages import recorded_faults
from tools.site.recorder.recording import strategies
from tools.site.turn_lines import lines_of
from tools.site.worlds import WHILE_RENEWED, WORLDS, Moves, read_moves, whole_schedules

LEVELS = levels()
RECORDED = read_moves()


def moves_of(level: Level) -> Moves:
    return RECORDED[level.world]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_goal_can_be_reached(level: Level) -> None:
    ways = level.schedules_reaching(moves_of(level), level.goal)
    assert ways
    assert len(ways[0]) == min(map(len, ways))


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_wrong_way_does_not_reach_the_goal(level: Level) -> None:
    """A level names a whole schedule that misses the goal, unless every schedule reaches it."""
    moves = moves_of(level)
    ways = tuple(level.schedules_reaching(moves, level.goal))
    schedules = whole_schedules(level.offered_moves(moves))
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
    """No event of the level's world records the move."""
    assert level.schedules_reaching(moves_of(level), level.impossible) == []


def test_levels_have_one_slug_each() -> None:
    slugs = [level.slug for level in LEVELS]
    assert len(set(slugs)) == len(slugs)
    assert not set(slugs) & set(WORLDS), "a world's name is the address of its free play"


def test_named_fault_has_the_verdict_of_the_level() -> None:
    """The cell to which a level links is an oversell or a deadlock, as the level's goal is."""
    verdicts = {
        f"{run['lock']}/{run['fault']}": run["verdict"] for run in recorded_faults()["runs"]
    }
    expected = {"oversold": "oversold", "foreign-release": "oversold", "stuck": "deadlock"}
    for level in LEVELS:
        if level.fault:
            assert verdicts[level.fault] == expected.get(level.goal, "exact"), level.slug


def test_every_turn_is_narrated() -> None:
    """Each turn has a line, except for a wait of the world."""
    for name, moves in RECORDED.items():
        words = narrate(moves, WORLDS[name])
        assert set(words) == {"", *moves}
        silent = {key for key in moves if not words[key]["lines"] and key[-1] != "W"}
        assert silent == set(), name


def test_page_has_the_text_of_each_level() -> None:
    page = level_page.page()
    for level in LEVELS:
        assert f'id="text-{level.slug}"' in page


def lines_after(world: str, key: str) -> list[str]:
    """Return the lines of the last turn of a schedule, with the buyer before each."""
    lines = lines_of(RECORDED[world], key, WORLDS[world])
    return [f"{line.buyer} {line.text}".strip() for line in lines]


def test_setnx_without_expire_has_a_lock_without_a_ttl() -> None:
    """SETNX has succeeded, and the holder is killed before EXPIRE."""
    words = narrate(RECORDED["setnx-expire"], WORLDS["setnx-expire"])
    assert words["A"]["lock"] == words["AKBW"]["lock"] == "A's, without a ttl"
    assert words["AA"]["lock"] == "A's"
    assert "lock" not in words["AAAAA"]
    assert lines_after("setnx-expire", "AKB") == ["B waits: the lock is A's"]


@pytest.mark.parametrize(
    ("world", "key", "line"),
    [
        ("token", "AAAA", "A gives the lock back"),
        ("setnx", "AAAFA", "A finds its lock gone, deletes nothing"),
        ("token", "AAABTA", "A finds its lock gone (it is B's now), deletes nothing"),
        ("setpx-del", "AAATBA", "A deletes the lock, which is B's"),
        ("fence-at-write", "AABPBBGAB", "A finds its lock gone, deletes nothing"),
    ],
)
def test_release_says_what_it_deletes(world: str, key: str, line: str) -> None:
    assert line in lines_after(world, key)


def test_no_buyer_gives_back_a_lock_that_it_lacks() -> None:
    for name, moves in RECORDED.items():
        for key in moves:
            before = recorded_owner(moves[key[:-1]]["state"]) if key[:-1] else ""
            if before != key[-1] and not lock_after(moves, key[:-1]).lacks_ttl:
                assert f"{key[-1]} gives the lock back" not in lines_after(name, key), (name, key)


@pytest.mark.parametrize(
    ("world", "key", "line"),
    [
        ("token", "AAT", "time passes: the ttl is over"),
        ("token-watchdog", "AAT", "time passes: the thread has renewed the lock"),
        ("setnx", "AAT", "time passes: the lock has no ttl"),
        ("token", "AAP", "A is paused for longer than the ttl"),
        ("row-lock", "AP", "A is paused"),
    ],
)
def test_passing_time_has_the_recorded_effect_on_a_lock(world: str, key: str, line: str) -> None:
    assert line in lines_after(world, key)
    is_kept = recorded_owner(RECORDED[world][key]["state"]) == "A"
    assert is_kept == ("no ttl" in line or "renewed" in line)


def test_refused_write_names_the_stored_fence() -> None:
    assert "B has the lock, with fence 2" in lines_after("redis", "ABP")
    assert lines_after("redis", "ABPBBBGA")[:2] == [
        "A UPDATE product SET fence = 1 WHERE name = 'apple' AND fence < 1",
        "A changes no row: fence 2 is already there",
    ]
    assert "A changes no row: fence 2 is already there" in lines_after("redis", "ABFBABB")


def test_second_order_with_a_key_is_refused() -> None:
    assert "A is refused: there is an order with this key" in lines_after(
        "redis-2-units", "AAAALAAA"
    )


def test_waiting_buyer_shows_the_others_progress() -> None:
    assert "B waits: A has locked this row and not committed" in lines_after("row-lock", "AB")
    assert "B waits: A has changed this row and not committed" in lines_after("none", "AABB")


def test_killed_buyer_believes_it_holds_nothing() -> None:
    words = narrate(RECORDED["redis"], WORLDS["redis"])
    assert words["AA"]["state"][2] == "A"
    assert words["AAK"]["state"][2] == ""


def test_impossible_event_says_why() -> None:
    words = narrate(RECORDED["token"], WORLDS["token"])
    assert words[""]["no_event_reason"] == "A has not begun: an event comes between two moves of A."
    assert words["A"]["no_event_reason"] == ""
    assert words["AAT"]["no_event_reason"] == "One event per try: go back to choose another."


def test_fields_of_a_world_are_those_of_its_strategy() -> None:
    strategies()  # sets Django up
    from shop.strategies import STRATEGIES

    for world in WORLDS.values():
        strategy = STRATEGIES[world.strategy]
        assert world.fenced == (strategy.fenced and world.strategy != "lock-then-read")
        assert (world.lock_lasts == WHILE_RENEWED) == strategy.renewed


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_marked_lines_are_in_the_code(level: Level) -> None:
    code = level_page.find_deciding_code(level)
    if code is None:
        code = strategies()[WORLDS[level.world].strategy]
    assert any(mark in code["code"] for mark in code["marks"])
    if level.code:
        assert all(mark in code["code"] for mark in code["marks"])
