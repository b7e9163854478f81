"""The levels of the site, and the texts about their turns, agree with the recorded schedules.

A level is a puzzle: the player chooses the moves of two buyers and an outside event, until the
schedule reaches a goal such as `oversold`. tools/site/worlds.py explains worlds, schedules, turns
and outside events, and lists the letters of the turns.
"""

import pytest

from tools.site import level_page
from tools.site.levels import Level, read_levels
from tools.site.lock_state import find_lock_state, read_believers, read_owner
from tools.site.narration import describe_turns
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


def get_moves(level: Level) -> Moves:
    """Return the recorded moves of the level's world: its strategy, stock and outside events."""
    return MOVES_BY_WORLD[level.world]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_goal_can_be_reached_and_the_shortest_schedule_comes_first(level: Level) -> None:
    schedules_to_goal = level.find_schedules_reaching(get_moves(level), level.goal)
    assert schedules_to_goal
    assert len(schedules_to_goal[0]) == min(map(len, schedules_to_goal))


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_wrong_schedule_does_not_reach_the_goal(level: Level) -> None:
    """The field `wrong` of a level is a schedule that does not reach the goal.

    It is empty if every schedule reaches the goal.
    """
    moves = get_moves(level)
    schedules_to_goal = tuple(level.find_schedules_reaching(moves, level.goal))
    schedules = list_whole_schedules(level.select_offered_moves(moves))
    # A schedule that continues one of `schedules_to_goal` has reached the goal, too.
    schedules_without_goal = [
        schedule for schedule in schedules if not schedule.startswith(schedules_to_goal)
    ]
    if schedules_without_goal:
        assert level.wrong in schedules_without_goal
    else:
        assert level.wrong == ""


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_level_offers_only_outside_events_of_its_world(level: Level) -> None:
    assert set(level.events) <= set(WORLDS[level.world].events)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_task_is_a_sentence(level: Level) -> None:
    """The page shows the task of a level without adding a period."""
    assert level.task.endswith(".")


@pytest.mark.parametrize(
    "level", [level for level in LEVELS if level.impossible], ids=lambda level: level.slug
)
def test_no_recorded_schedule_reaches_an_impossible_goal(level: Level) -> None:
    """The task of such a level sets a goal that cannot be reached: the field `impossible`."""
    assert level.find_schedules_reaching(get_moves(level), level.impossible) == []


def test_slugs_are_unique_addresses() -> None:
    """No slug is the name of a world, because `#WORLD` is the address of free play in a world."""
    slugs = [level.slug for level in LEVELS]
    assert len(set(slugs)) == len(slugs)
    assert set(slugs).isdisjoint(WORLDS)


def test_recorded_verdict_fits_the_goal_of_the_level() -> None:
    """The field `fault` of a level is a recorded run: STRATEGY/FAULT, such as `token/pause`.

    If the goal is a failure of the strategy, the verdict of this run is this failure. Otherwise the
    strategy prevents the failure, and the verdict is `exact`.
    """
    verdicts = {
        f"{run['lock']}/{run['fault']}": run["verdict"] for run in read_recorded_faults()["runs"]
    }
    verdict_by_goal = {"oversold": "oversold", "foreign-release": "oversold", "stuck": "deadlock"}
    for level in LEVELS:
        if level.fault:
            assert verdicts[level.fault] == verdict_by_goal.get(level.goal, "exact"), level.slug


def test_every_turn_has_a_line() -> None:
    """The page shows a line for each turn, except a turn in which a buyer continues to wait.

    describe_turns() returns what the page shows after each turn (a view).
    """
    for name, moves in MOVES_BY_WORLD.items():
        views = describe_turns(moves, WORLDS[name])
        assert set(views) == {"", *moves}
        turns_without_line = {
            turns_made
            for turns_made in moves
            if not views[turns_made]["lines"] and turns_made[-1] != KEEP_WAITING
        }
        assert turns_without_line == set(), name


def test_page_has_the_text_of_each_level() -> None:
    """The page has a text for each level, which a browser without JavaScript shows."""
    page = level_page.render_levels()
    for level in LEVELS:
        assert f'id="text-{level.slug}"' in page


def list_lines_after(world: str, turns_made: str) -> list[str]:
    """Return the lines that the page shows for the last of these turns, such as `A reads 1`."""
    lines = list_lines(MOVES_BY_WORLD[world], turns_made, WORLDS[world])
    return [f"{line.buyer} {line.text}".strip() for line in lines]


def test_setnx_without_expire_has_a_lock_without_a_ttl() -> None:
    """The page shows that the lock has no ttl while A has sent SETNX and not yet EXPIRE.

    In AKBW, A is killed (K) between the two commands, and B waits (W). After AA, A has sent both
    commands. After AAAAA, A has released the lock and ended its purchase.
    """
    views = describe_turns(MOVES_BY_WORLD["setnx-expire"], WORLDS["setnx-expire"])
    assert views["A"]["lock"] == views["AKBW"]["lock"] == "A's, without a ttl"
    assert views["AA"]["lock"] == "A's"
    assert "lock" not in views["AAAAA"]
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
def test_line_of_a_release_says_what_it_deletes(world: str, turns_made: str, line: str) -> None:
    """A releases its lock in the last turn. Before this turn A may have lost the lock to B.

    A loses its lock when the locks' server fails over (F), when the ttl expires (T), or when A is
    paused for longer than the ttl (P, until G). In the last case A waits for B's commit, so A
    releases the lock in a turn of B.
    """
    assert line in list_lines_after(world, turns_made)


def test_only_the_owner_gives_the_lock_back() -> None:
    """The page says that a buyer gives the lock back only if this buyer had the lock before.

    Turns that begin between SETNX and EXPIRE are not checked, because the recording does not have
    the owner of the lock there.
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
    """In the turn T time passes, and in P buyer A's process is paused.

    Afterwards A still owns the lock only if the lock has no ttl, or is renewed.
    """
    assert line in list_lines_after(world, turns_made)
    owner = read_owner(MOVES_BY_WORLD[world][turns_made]["state"])
    if "no ttl" in line or "renewed" in line:
        assert owner == "A"
    else:
        assert owner != "A"


def test_refused_write_mentions_the_stored_fence() -> None:
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
    """A has bought in four moves, and its answer is lost (L). Then A buys with the same key."""
    assert "A is refused: there is an order with this key" in list_lines_after(
        "redis-2-units", "AAAALAAA"
    )


def test_line_of_a_waiting_buyer_says_what_it_waits_for() -> None:
    """B waits for a row that A has locked (AB), or for a row that A has changed (AABB)."""
    assert "B waits: A has locked this row and not committed" in list_lines_after("row-lock", "AB")
    assert "B waits: A has changed this row and not committed" in list_lines_after("none", "AABB")


def test_killed_buyer_does_not_believe_that_it_has_the_lock() -> None:
    """After AA, A believes that it has the lock. In the turn K, A's process is killed."""
    views = describe_turns(MOVES_BY_WORLD["redis"], WORLDS["redis"])
    assert read_believers(views["AA"]["state"]) == "A"
    assert read_believers(views["AAK"]["state"]) == ""


def test_page_says_why_no_event_is_possible() -> None:
    """No outside event can come before A's first move, or after another outside event.

    Here this event is T, in which time passes until the ttl is over.
    """
    views = describe_turns(MOVES_BY_WORLD["token"], WORLDS["token"])
    assert views[""]["no_event_reason"] == "A has not begun: an event comes between two moves of A."
    assert views["A"]["no_event_reason"] == ""
    assert views["AAT"]["no_event_reason"] == "One event per try: go back to choose another."


def test_worlds_agree_with_their_strategies() -> None:
    """`fenced` and `lock_duration` of each world in WORLDS are right for its strategy."""
    describe_strategies()  # sets Django up
    from shop.strategies import STRATEGIES

    for world in WORLDS.values():
        strategy = STRATEGIES[world.strategy]
        assert world.fenced == strategy.fenced
        assert (world.lock_duration == WHILE_RENEWED) == strategy.renewed


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.slug)
def test_marks_are_in_the_code(level: Level) -> None:
    """The page highlights the lines that decide a level: those that contain a mark, a short text.

    Some marks of a strategy are in code that the page does not show.
    """
    deciding_code = level_page.find_deciding_code(level)
    if deciding_code is None:
        deciding_code = describe_strategies()[WORLDS[level.world].strategy]
    marks_in_code = [mark for mark in deciding_code["marks"] if mark in deciding_code["code"]]
    assert marks_in_code
    if level.code:
        assert marks_in_code == deciding_code["marks"]
