"""The levels of the site's game, and their narration, agree with the recorded schedules.

In a level the player chooses the turns of two buyers and the outside events, until they reach a
goal such as `oversold`. tools/site/worlds.py explains worlds, turns and events, and their letters.
"""

import pytest

from tools.site import level_page
from tools.site.levels import Level, read_levels
from tools.site.lock_state import find_lock_state, read_owner
from tools.site.narration import narrate
from tools.site.pages import read_recorded_faults
from tools.site.recorder.recording import describe_strategies
from tools.site.turn_lines import list_lines
from tools.site.worlds import (
    KEEP_WAITING,
    WHILE_RENEWED,
    WORLDS,
    Moves,
    list_whole_schedules,
    read_moves,
)

LEVELS = read_levels()
MOVES_BY_WORLD = read_moves()


def moves_of(level: Level) -> Moves:
    """Return the recorded moves of the level's world."""
    return MOVES_BY_WORLD[level.world]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_goal_can_be_reached_and_the_shortest_schedule_comes_first(level: Level) -> None:
    schedules_to_goal = level.find_schedules_reaching(moves_of(level), level.goal)
    assert schedules_to_goal
    assert len(schedules_to_goal[0]) == min(map(len, schedules_to_goal))


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_wrong_schedule_does_not_reach_the_goal(level: Level) -> None:
    """A level's `wrong` is a schedule that does not reach the goal; empty if there is none.

    A schedule that begins with one of `schedules_to_goal` has reached the goal.
    """
    moves = moves_of(level)
    schedules_to_goal = tuple(level.find_schedules_reaching(moves, level.goal))
    schedules = list_whole_schedules(level.select_offered_moves(moves))
    not_reaching = [
        schedule for schedule in schedules if not schedule.startswith(schedules_to_goal)
    ]
    if not_reaching:
        assert level.wrong in not_reaching
    else:
        assert level.wrong == ""


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_events_of_a_level_are_those_of_its_world(level: Level) -> None:
    assert set(level.events) <= set(WORLDS[level.world].events)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_task_is_a_sentence(level: Level) -> None:
    assert level.task.endswith(".")


@pytest.mark.parametrize(
    "level", [level for level in LEVELS if level.impossible], ids=lambda level: level.slug
)
def test_no_recorded_schedule_reaches_an_impossible_goal(level: Level) -> None:
    assert level.find_schedules_reaching(moves_of(level), level.impossible) == []


def test_slugs_are_unique_addresses() -> None:
    slugs = [level.slug for level in LEVELS]
    assert len(set(slugs)) == len(slugs)
    assert not set(slugs) & set(WORLDS), "in the address, the name of a world is its free play"


def test_recorded_verdict_fits_the_goal_of_the_level() -> None:
    """A level's `fault` names a recorded run: a strategy and a fault, such as `token/pause`.

    If the goal of the level is harm, the verdict of this run shows the harm. Otherwise the verdict
    is `exact`.
    """
    verdicts = {
        f"{run['lock']}/{run['fault']}": run["verdict"] for run in read_recorded_faults()["runs"]
    }
    verdict_by_goal = {"oversold": "oversold", "foreign-release": "oversold", "stuck": "deadlock"}
    for level in LEVELS:
        if level.fault:
            assert verdicts[level.fault] == verdict_by_goal.get(level.goal, "exact"), level.slug


def test_every_turn_is_narrated() -> None:
    """Each turn has a line of text, except a turn in which a buyer only goes on waiting."""
    for name, moves in MOVES_BY_WORLD.items():
        turns = narrate(moves, WORLDS[name])
        assert set(turns) == {"", *moves}
        silent = {
            turns_made
            for turns_made in moves
            if not turns[turns_made]["lines"] and turns_made[-1] != KEEP_WAITING
        }
        assert silent == set(), name


def test_page_has_the_text_of_each_level() -> None:
    """The text is for a browser without JavaScript."""
    page = level_page.render_page()
    for level in LEVELS:
        assert f'id="text-{level.slug}"' in page


def list_lines_after(world: str, turns_made: str) -> list[str]:
    """Return the lines that the page shows for the last of these turns, each after its buyer."""
    lines = list_lines(MOVES_BY_WORLD[world], turns_made, WORLDS[world])
    return [f"{line.buyer} {line.text}".strip() for line in lines]


def test_setnx_without_expire_has_a_lock_without_a_ttl() -> None:
    """In AKBW, A is killed between SETNX and EXPIRE, and B waits.

    In AA, A has sent both commands. After AAAAA A has released the lock and ended.
    """
    turns = narrate(MOVES_BY_WORLD["setnx-expire"], WORLDS["setnx-expire"])
    assert turns["A"]["lock"] == turns["AKBW"]["lock"] == "A's, without a ttl"
    assert turns["AA"]["lock"] == "A's"
    assert "lock" not in turns["AAAAA"]
    assert list_lines_after("setnx-expire", "AKB") == ["B waits: the lock is A's"]


@pytest.mark.parametrize(
    ("world", "turns_made", "line"),
    [
        ("token", "AAAA", "A gives the lock back"),
        ("setnx", "AAAFA", "A finds its lock gone, deletes nothing"),
        ("token", "AAABTA", "A finds its lock gone (it is B's now), deletes nothing"),
        ("setpx-del", "AAATBA", "A deletes the lock, which is B's"),
        ("fence-at-write", "AABPBBGAB", "A finds its lock gone, deletes nothing"),
    ],
)
def test_release_says_what_it_deletes(world: str, turns_made: str, line: str) -> None:
    assert line in list_lines_after(world, turns_made)


def test_no_buyer_gives_back_a_lock_that_it_lacks() -> None:
    """The page says that a buyer gives the lock back only if the lock was this buyer's.

    Turns that begin between SETNX and EXPIRE are left out, because there the recording does not
    have the lock's owner.
    """
    for name, moves in MOVES_BY_WORLD.items():
        for turns_made in moves:
            turns_before = turns_made[:-1]
            mover = turns_made[-1]
            owner_before = read_owner(moves[turns_before]["state"]) if turns_before else ""
            if owner_before != mover and not find_lock_state(moves, turns_before).lacks_ttl:
                lines = list_lines_after(name, turns_made)
                assert f"{mover} gives the lock back" not in lines, (name, turns_made)


@pytest.mark.parametrize(
    ("world", "turns_made", "line"),
    [
        ("token", "AAT", "time passes: the ttl is over"),
        ("token-watchdog", "AAT", "time passes: the thread has renewed the lock"),
        ("setnx", "AAT", "time passes: the lock has no ttl"),
        ("token", "AAP", "A is paused for longer than the ttl"),
        ("row-lock", "AP", "A is paused"),
    ],
)
def test_passing_time_has_the_recorded_effect_on_a_lock(
    world: str, turns_made: str, line: str
) -> None:
    """`A` is a move of the buyer A, `T` time that passes, and `P` a pause of A's process.

    A keeps the lock only if the lock has no ttl, or is renewed.
    """
    assert line in list_lines_after(world, turns_made)
    owner = read_owner(MOVES_BY_WORLD[world][turns_made]["state"])
    if "no ttl" in line or "renewed" in line:
        assert owner == "A"
    else:
        assert owner != "A"


def test_refused_write_names_the_stored_fence() -> None:
    """A holds the lock with fence 1. It is paused (P), or the locks' server fails over (F).

    Then B acquires the lock with fence 2 and writes the fence, so the database refuses A's write.
    """
    assert "B has the lock, with fence 2" in list_lines_after("redis", "ABP")
    assert list_lines_after("redis", "ABPBBBGA")[:2] == [
        "A UPDATE product SET fence = 1 WHERE name = 'apple' AND fence < 1",
        "A changes no row: fence 2 is already there",
    ]
    assert "A changes no row: fence 2 is already there" in list_lines_after("redis", "ABFBABB")


def test_second_order_with_a_key_is_refused() -> None:
    """A has bought in four moves and its answer is lost (L), so it buys again with the same key."""
    assert "A is refused: there is an order with this key" in list_lines_after(
        "redis-2-units", "AAAALAAA"
    )


def test_waiting_buyer_names_what_the_other_did() -> None:
    """B waits for a row that A has locked, and for a row that A has changed."""
    assert "B waits: A has locked this row and not committed" in list_lines_after("row-lock", "AB")
    assert "B waits: A has changed this row and not committed" in list_lines_after("none", "AABB")


def test_killed_buyer_believes_it_holds_nothing() -> None:
    turns = narrate(MOVES_BY_WORLD["redis"], WORLDS["redis"])
    # In the turn K, A's process is killed. The third part of a state is the buyers who believe that
    # they hold the lock.
    assert turns["AA"]["state"][2] == "A"
    assert turns["AAK"]["state"][2] == ""


def test_page_says_why_no_event_is_possible() -> None:
    """No event can come before A's first move, or after another event, such as T."""
    turns = narrate(MOVES_BY_WORLD["token"], WORLDS["token"])
    assert turns[""]["no_event_reason"] == "A has not begun: an event comes between two moves of A."
    assert turns["A"]["no_event_reason"] == ""
    assert turns["AAT"]["no_event_reason"] == "One event per try: go back to choose another."


def test_fields_of_a_world_are_those_of_its_strategy() -> None:
    describe_strategies()  # sets Django up
    from shop.strategies import STRATEGIES

    for world in WORLDS.values():
        strategy = STRATEGIES[world.strategy]
        assert world.fenced == strategy.fenced
        assert (world.lock_duration == WHILE_RENEWED) == strategy.renewed


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_marked_lines_are_in_the_code(level: Level) -> None:
    code = level_page.find_deciding_code(level)
    if code is None:
        code = describe_strategies()[WORLDS[level.world].strategy]
    assert any(mark in code["code"] for mark in code["marks"])
    # The marks of a strategy may also be in code that the page leaves out.
    if level.code:
        assert all(mark in code["code"] for mark in code["marks"])
