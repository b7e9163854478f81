"""The lines of text that the site shows for a recorded turn.

They say what a buyer did, or which outside event happened. tools/site/worlds.py explains turns,
worlds, outside events and Moves.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.site.lock_state import (
    LockState,
    deletes_other_buyers_lock,
    describe_release,
    find_believers,
    find_lock_state,
    has_recorded_owner,
)
from tools.site.worlds import (
    BUYERS,
    FAILOVER,
    KILL,
    OTHER_BUYER,
    PAUSE,
    RESTART,
    RESUME,
    RETRY,
    TIME_PASSES,
    UNTIL_DELETED,
    UNTIL_TTL_IS_OVER,
    WHILE_RENEWED,
    Moves,
    RecordedEvent,
    World,
    list_beginnings,
    read_events,
)

#: Outcome of a purchase -> a clause whose subject is the buyer.
OUTCOME_CLAUSES = {
    "sold": "has an order",
    "sold_out": "is told: sold out",
    "busy": "is told: try again",
    "lost": "lost the lock: nothing sold",
    "replayed": "is given the order that it has",
}
#: Outside event, or what follows one -> the column in which its line is shown (a buyer; empty: both
#: columns), and the line.
EVENT_LINES = {
    TIME_PASSES: ("", "time passes"),
    PAUSE: ("A", "is paused"),
    RESUME: ("A", "continues where it was"),
    KILL: ("A", "is killed"),
    RESTART: ("", "the locks' server has restarted, without any key"),
    FAILOVER: ("", "a replica without the lock answers in the place of the locks' server"),
    RETRY: ("A", "does not get its answer, and retries with the same Idempotency-Key"),
}
#: World.lock_duration -> the line for the turn TIME_PASSES.
TIME_PASSES_LINES = {
    UNTIL_DELETED: "time passes: the lock has no ttl",
    UNTIL_TTL_IS_OVER: "time passes: the ttl is over",
    WHILE_RENEWED: "time passes: the thread has renewed the lock",
}
#: The values of World.lock_duration for locks with a ttl. A recorded pause is longer than this ttl.
DURATIONS_WITH_TTL = (UNTIL_TTL_IS_OVER, WHILE_RENEWED)
#: Stands for the world of the schedules in schedules.json, which have no outside events.
NO_WORLD = World("", ())
#: Kind of a buyer's event -> its line. Kinds whose line depends on the event's details are missing.
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
    """A line of text about a turn.

    buyer  the buyer in whose column the line is shown; empty: both columns
    kind   the style of the line: sql (a statement), end (of a purchase), world (an outside event),
           or empty for any other line
    """

    buyer: str
    kind: str
    text: str


def list_lines(moves: Moves, turns_made: str, world: World = NO_WORLD) -> list[TurnLine]:
    """Return the lines that describe the last turn of `turns_made`, such as the B in `AAB`."""
    lines = []
    if turns_made[-1] in EVENT_LINES:
        buyer, text = _describe_outside_event(turns_made[-1], world)
        lines.append(TurnLine(buyer, "world", text))
    lock = find_lock_state(moves, turns_made[:-1])
    turn_events = read_events(moves[turns_made])
    for position, event in enumerate(turn_events):
        buyer, kind, details = event
        lock_before = lock
        lock = lock.apply_event(event)
        if buyer not in BUYERS:  # an outside event, which has its line already
            continue
        if kind == "sends":
            refusal = _explain_refusal(turn_events, position, lock)
            if refusal:
                lines.append(TurnLine(buyer, "", refusal))
            (statement,) = details
            if world.fenced:
                statement = _insert_fence(statement, lock.fences[buyer])
            lines.append(TurnLine(buyer, "sql", statement))
        elif kind == "ends":
            (outcome,) = details
            lines.append(TurnLine(buyer, "end", describe_outcome(outcome)))
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


def _describe_point(event: RecordedEvent, lock: LockState, world: World) -> str:
    """Return the line for an event of a buyer, such as `has the lock`; empty if it has no line.

    The kind of the event is either a point of the purchase, such as `acquired`, or it is `forever`,
    which means that the buyer waits forever.

    lock  the state of the lock after the event
    """
    buyer, kind, details = event
    if kind == "after_read":
        (amount,) = details
        comment = "there is one" if amount else "nothing left"
        return f"reads {amount}: {comment}"
    if kind == "acquired" and world.fenced:
        return f"has the lock, with fence {lock.fences[buyer]}"
    return CLAUSES_BY_KIND.get(kind, "")


def _describe_outside_event(turn: str, world: World) -> tuple[str, str]:
    """Return the line for an outside event: the buyer in whose column it is shown, and the text.

    The buyer is empty if the line is shown in both columns.
    """
    buyer, text = EVENT_LINES[turn]
    if turn == TIME_PASSES:
        return buyer, TIME_PASSES_LINES.get(world.lock_duration, text)
    if turn == PAUSE and world.lock_duration in DURATIONS_WITH_TTL:
        return buyer, "is paused for longer than the ttl"
    return buyer, text


def _describe_recorded_release(moves: Moves, turns_made: str, buyer: str, lock: LockState) -> str:
    """Return the line for a buyer who releases its lock in the last turn of `turns_made`.

    lock  the state of the lock before the release
    """
    if not has_recorded_owner(moves, turns_made):
        return "gives the lock back"
    deletes_other = deletes_other_buyers_lock(moves, turns_made)
    return describe_release(lock, buyer, deletes_other=deletes_other)


def _explain_refusal(turn_events: Sequence[RecordedEvent], position: int, lock: LockState) -> str:
    """Return why the database refused the write that precedes a statement; empty if it did not.

    The recording does not contain the refusal, but the statement after it. After a write whose
    fence was too low, the shop sends a SELECT. After a write whose idempotency key was a duplicate,
    the shop sends a ROLLBACK.

    position  the index of the statement's event in `turn_events`
    lock      the state of the lock at this statement
    """
    buyer = turn_events[position].buyer
    (statement,) = turn_events[position].details
    outcomes = [
        event.details[0]
        for event in turn_events[position:]
        if event.buyer == buyer and event.kind == "ends"
    ]
    if outcomes == ["lost"] and statement.startswith("SELECT"):
        higher_fence = lock.fences[OTHER_BUYER[buyer]]
        return f"changes no row: fence {higher_fence} is already there"
    if outcomes == ["replayed"] and statement == "ROLLBACK":
        return "is refused: there is an order with this key"
    return ""


def _insert_fence(statement: str, fence: int) -> str:
    """Return a recorded statement in which the fence replaces the recorder's word `mine`."""
    return re.sub(r"\bmine\b", str(fence), statement)


def describe_outcome(outcome: str) -> str:
    """Return the outcome of a purchase as a clause about the buyer, such as `has an order`."""
    return OUTCOME_CLAUSES.get(outcome, f"is told: {outcome.replace('_', ' ')}")


def _explain_wait(moves: Moves, turns_made: str, buyer: str) -> str:
    """Return the line for a buyer who waits after `turns_made`: it says what the buyer waits for.

    If the buyer's last statement in this turn is one that can block, the buyer waits in the
    database. Otherwise the buyer waits for the strategy's lock.
    """
    other = OTHER_BUYER[buyer]
    statements = _list_statements(moves[turns_made], buyer)
    if statements and "pg_advisory" in statements[-1]:
        return f"waits: {other} has this advisory lock and has not committed"
    if statements and WAITING_STATEMENT.search(statements[-1]):
        other_statements = _list_statements_so_far(moves, turns_made, other)
        has_written = any(map(WRITING_STATEMENT.match, other_statements))
        verb = "changed" if has_written else "locked"
        return f"waits: {other} has {verb} this row and not committed"
    owner = find_lock_state(moves, turns_made[:-1]).owner
    # The other buyer may believe that it has the lock although it has lost the lock on the server.
    if other == owner or other in _find_believers_before(moves, turns_made):
        return f"waits: the lock is {other}'s"
    return "waits for the lock"


def _list_statements(turn: Mapping[str, Any], buyer: str) -> list[str]:
    """Return the statements that a buyer sent in a turn, an entry of Moves."""
    return [
        event.details[0]
        for event in read_events(turn)
        if event.buyer == buyer and event.kind == "sends"
    ]


def _list_statements_so_far(moves: Moves, turns_made: str, buyer: str) -> list[str]:
    """Return the statements that a buyer has sent in all turns of `turns_made`."""
    statements = []
    for beginning in list_beginnings(turns_made):
        statements += _list_statements(moves[beginning], buyer)
    return statements


def _find_believers_before(moves: Moves, turns_made: str) -> str:
    """Return the buyers who believed before the last turn that they have the lock, such as `AB`."""
    if not turns_made[:-1]:
        return ""
    return find_believers(moves, turns_made[:-1])
