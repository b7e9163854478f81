"""The text that the site shows for a recorded turn: what a buyer did, or which event happened.

tools/site/worlds.py explains turns, worlds and outside events.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tools.site.lock_state import (
    LockState,
    deletes_others_lock,
    describe_release,
    find_believers,
    find_lock_state,
    has_recorded_owner,
)
from tools.site.worlds import (
    ASKS_AGAIN,
    BUYERS,
    FAILOVER,
    GOES_ON,
    KILL,
    OTHER_BUYER,
    PAUSE,
    RESTART,
    TIME_PASSES,
    UNTIL_DELETED,
    UNTIL_TTL_IS_OVER,
    WHILE_RENEWED,
    Moves,
    World,
)

#: Outcome of a purchase -> the clause about its buyer.
OUTCOME_CLAUSES = {
    "sold": "has an order",
    "sold_out": "is told: sold out",
    "busy": "is told: try again",
    "lost": "lost the lock: nothing sold",
    "replayed": "is given the order that it has",
}
#: Outside event, or its consequence -> the buyer in whose column its line stands, and the line. An
#: empty buyer stands for both columns.
WORLD_LINES = {
    TIME_PASSES: ("", "time passes"),
    PAUSE: ("A", "is paused"),
    GOES_ON: ("A", "goes on where it was"),
    KILL: ("A", "is killed"),
    RESTART: ("", "the locks' server has restarted, without any key"),
    FAILOVER: ("", "a replica without the lock answers in the place of the locks' server"),
    ASKS_AGAIN: ("A", "does not get its answer, and asks again with the same Idempotency-Key"),
}
#: The line for the turn in which time passes, by how long the lock lasts.
TTL_LINES = {
    UNTIL_DELETED: "time passes: the lock has no ttl",
    UNTIL_TTL_IS_OVER: "time passes: the ttl is over",
    WHILE_RENEWED: "time passes: the thread has renewed the lock",
}
#: The values of World.lock_duration for locks with a ttl. A recorded pause is longer than this ttl.
LOCKS_WITH_TTL = (UNTIL_TTL_IS_OVER, WHILE_RENEWED)
#: The world of the schedules in schedules.json, which were recorded without events.
NO_WORLD = World("", ())
#: Kind of a buyer's event -> its line, if all events of the kind have the same line.
CLAUSES_BY_KIND = {
    "setnx:before_expire": "has sent SETNX, and not yet EXPIRE",
    "acquired": "has the lock",
    "unlocked_before_commit": "gives the lock back before it has committed",
    "reserved": "has reserved a unit in Redis",
    "forever": "waits forever",
}
#: Statements that change a row.
WRITING_STATEMENT = re.compile("UPDATE|INSERT|DELETE")
#: Statements that wait for another transaction's uncommitted row or lock.
WAITING_STATEMENT = re.compile("UPDATE|INSERT|DELETE|FOR UPDATE|pg_advisory")


@dataclass(frozen=True, slots=True)
class TurnLine:
    """A line of a turn.

    buyer  the buyer in whose column the line stands; empty: both columns
    kind   sql (a statement), end (of a purchase), world (an outside event), or empty for any other
    """

    buyer: str
    kind: str
    text: str


def list_lines(moves: Moves, turns_made: str, world: World = NO_WORLD) -> list[TurnLine]:
    """Return the lines that describe the last turn of `turns_made`, the beginning of a schedule."""
    lines = []
    if turns_made[-1] in WORLD_LINES:
        buyer, text = _describe_event(turns_made[-1], world)
        lines.append(TurnLine(buyer, "world", text))
    lock = find_lock_state(moves, turns_made[:-1])
    turn_events = moves[turns_made]["did"]
    for position, event in enumerate(turn_events):
        buyer, kind = event[:2]
        lock_before = lock
        lock = lock.after(event)
        if buyer not in BUYERS:  # an outside event, which has its line already
            continue
        if kind == "sends":
            refusal = _explain_refusal(turn_events, position, lock)
            if refusal:
                lines.append(TurnLine(buyer, "", refusal))
            statement = event[2]
            if world.fenced:
                statement = _insert_fence(statement, lock.fences[buyer])
            lines.append(TurnLine(buyer, "sql", statement))
        elif kind == "ends":
            lines.append(TurnLine(buyer, "end", describe_outcome(event[2])))
        elif kind == "released":
            text = _describe_recorded_release(moves, turns_made, buyer, lock_before)
            lines.append(TurnLine(buyer, "", text))
        elif kind == "waits":
            lines.append(TurnLine(buyer, "", _explain_wait(moves, turns_made, buyer)))
        else:
            clause = _describe_point(event, lock, world)
            if clause:
                lines.append(TurnLine(buyer, "", clause))
    return lines


def _describe_point(event: Sequence[Any], lock: LockState, world: World) -> str:
    """Return the clause about a buyer at a point of its purchase, such as `has the lock`.

    Empty if the site shows nothing at this point.

    lock  the state of the lock after the event
    """
    buyer, kind = event[:2]
    if kind == "after_read":
        meaning = "there is one" if event[2] else "nothing left"
        return f"reads {event[2]}: {meaning}"
    if kind == "acquired" and world.fenced:
        return f"has the lock, with fence {lock.fences[buyer]}"
    return CLAUSES_BY_KIND.get(kind, "")


def _describe_event(turn: str, world: World) -> tuple[str, str]:
    """Return the line for an outside event: its buyer (empty: both buyers), and its text."""
    buyer, text = WORLD_LINES[turn]
    if turn == TIME_PASSES:
        return buyer, TTL_LINES.get(world.lock_duration, text)
    if turn == PAUSE and world.lock_duration in LOCKS_WITH_TTL:
        return buyer, "is paused for longer than the ttl"
    return buyer, text


def _describe_recorded_release(moves: Moves, turns_made: str, buyer: str, lock: LockState) -> str:
    """Return the line of a buyer who releases its lock.

    lock  the state of the lock before the release
    """
    if not has_recorded_owner(moves, turns_made):
        return "gives the lock back"
    return describe_release(lock, buyer, deletes_others=deletes_others_lock(moves, turns_made))


def _explain_refusal(turn_events: Sequence[Sequence[Any]], position: int, lock: LockState) -> str:
    """Return why the database refused the write before a statement; empty if it refused none.

    The recording does not have the refusal. The next statement shows it: the shop sends a SELECT
    after a fence that was too low, and a ROLLBACK after an idempotency key that was a duplicate.

    position  the index of the statement in `turn_events`
    lock      the state of the lock at the statement
    """
    buyer, _, statement = turn_events[position][:3]
    outcomes = [event[2] for event in turn_events[position:] if event[:2] == [buyer, "ends"]]
    if outcomes == ["lost"] and statement.startswith("SELECT"):
        higher_fence = lock.fences[OTHER_BUYER[buyer]]
        return f"changes no row: fence {higher_fence} is already there"
    if outcomes == ["replayed"] and statement == "ROLLBACK":
        return "is refused: there is an order with this key"
    return ""


def _insert_fence(statement: str, fence: int) -> str:
    """Return a recorded statement with its fence, for which the recorder wrote `mine`."""
    return re.sub(r"\bmine\b", str(fence), statement)


def describe_outcome(outcome: str) -> str:
    """Return an outcome as a clause without its subject, such as `has an order`."""
    return OUTCOME_CLAUSES.get(outcome, f"is told: {outcome.replace('_', ' ')}")


def _explain_wait(moves: Moves, turns_made: str, buyer: str) -> str:
    """Return the line of a buyer who waits for a lock, or for a row of the database."""
    other = OTHER_BUYER[buyer]
    statements = _list_statements(moves[turns_made]["did"], buyer)
    if statements and "pg_advisory" in statements[-1]:
        return f"waits: {other} has this advisory lock and has not committed"
    if statements and WAITING_STATEMENT.search(statements[-1]):
        other_statements = _list_statements_so_far(moves, turns_made, other)
        has_written = any(map(WRITING_STATEMENT.match, other_statements))
        verb = "changed" if has_written else "locked"
        return f"waits: {other} has {verb} this row and not committed"
    owner = find_lock_state(moves, turns_made[:-1]).owner
    if other == owner or other in _find_believers_before(moves, turns_made):
        return f"waits: the lock is {other}'s"
    return "waits for the lock"


def _list_statements(turn_events: Sequence[Sequence[Any]], buyer: str) -> list[str]:
    """Return the statements that a buyer sent in a turn."""
    return [event[2] for event in turn_events if list(event[:2]) == [buyer, "sends"]]


def _list_statements_so_far(moves: Moves, turns_made: str, buyer: str) -> list[str]:
    """Return the statements that a buyer sent in all of `turns_made`."""
    statements = []
    for length in range(1, len(turns_made) + 1):
        statements += _list_statements(moves[turns_made[:length]]["did"], buyer)
    return statements


def _find_believers_before(moves: Moves, turns_made: str) -> str:
    """Return the buyers who believed before the last turn that they have the lock, as text."""
    if not turns_made[:-1]:
        return ""
    return find_believers(moves, turns_made[:-1])
