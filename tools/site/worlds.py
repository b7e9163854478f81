"""The recorded worlds, whose schedules are in recorded/worlds.json.

A world is a strategy with its database, its stock and the outside events that may disturb buyer A.
An outside event is, for example, a pause of A's process or a restart of the locks' server.

A schedule is a string of turns, such as `AAPBBG`. A turn is one letter: `A` or `B` for the next
move of this buyer, or the letter of an outside event. After an outside event, a turn may also be
RESUME or KEEP_WAITING.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from loadtest.stack.databases import POSTGRES

#: What happened in each turn of some schedules. A key is the beginning of a schedule, such as
#: `AAP`. Its entry describes the last turn of this key (here `P`), and has two fields:
#:
#: did    the events of the turn, each a list: the buyer, the kind, and details. See Trace in
#:        recorder/live.py, and read_events()
#: state  a list with the state after the turn: the stock, the number of orders, the buyers who
#:        believe that they hold the lock, and the lock's owner: the buyer whose token is on the
#:        locks' server. schedules.json has no owners
Moves = dict[str, dict[str, Any]]

#: A purchase reads the stock in its first move, writes stock and order in the second, and commits
#: in the third.
MOVES_PER_PURCHASE = 3
#: The files that tools.site.recorder writes.
RECORDED_FOLDER = Path(__file__).parent / "recorded"
WORLDS_FILE = RECORDED_FOLDER / "worlds.json"
BUYERS = ("A", "B")
OTHER_BUYER = {"A": "B", "B": "A"}
#: A's process is stopped for longer than the ttl.
PAUSE = "P"
#: A's paused process continues.
RESUME = "G"
#: Time passes until the ttl is over, while A's process runs.
TIME_PASSES = "T"
#: A's process is killed.
KILL = "K"
#: The locks' server restarts without any key.
RESTART = "R"
#: The locks' server dies, and a replica that never received the lock takes over its address.
FAILOVER = "F"
#: A has bought, the response is lost, and A sends the purchase again with the same Idempotency-Key.
RETRY = "L"
#: The waiting buyer continues to wait, because no buyer can move.
KEEP_WAITING = "W"
#: Outside event -> the fault of `make faults` that corresponds to it.
FAULTS_BY_EVENT = {
    TIME_PASSES: "slow",
    PAUSE: "pause",
    KILL: "crash",
    RESTART: "restart",
    FAILOVER: "failover",
    RETRY: "unknown-commit",
}


#: How long a lock lasts on its server if its holder does not release it.
UNTIL_DELETED = "until it is deleted"
UNTIL_TTL_IS_OVER = "until its ttl is over"
WHILE_RENEWED = "while its holder's process renews it"


@dataclass(frozen=True, slots=True)
class World:
    """A strategy, its database, its stock and its outside events.

    events         the outside events, of which a schedule has at most one; NO_EVENT stands for the
                   schedules without an outside event
    lock_duration  one of the three texts above; empty if the strategy has no lock on a lock server
    fenced         whether the strategy's lock grants fences, which the database then checks
    units          the stock at the beginning
    database       the name of a database in loadtest.stack.databases
    """

    strategy: str
    events: tuple[str, ...]
    lock_duration: str = ""
    fenced: bool = False
    units: int = 1
    database: str = POSTGRES

    @property
    def has_server_lock(self) -> bool:
        """Return whether the strategy has a lock on a lock server."""
        return bool(self.lock_duration)


#: Stands for the outside event in a schedule without an outside event.
NO_EVENT = ""
#: The outside events of a strategy with a lock on a lock server.
LOCK_EVENTS = (NO_EVENT, TIME_PASSES, PAUSE, KILL, RESTART, FAILOVER)
#: The recorded worlds, by their names in WORLDS_FILE.
WORLDS = {
    "none": World("none", (NO_EVENT, KILL)),
    "setnx": World("setnx", LOCK_EVENTS, UNTIL_DELETED),
    "setnx-expire": World("setnx-expire", (NO_EVENT, KILL), UNTIL_TTL_IS_OVER),
    "setpx-del": World("setpx-del", (NO_EVENT, TIME_PASSES, PAUSE), UNTIL_TTL_IS_OVER),
    "token": World("token", LOCK_EVENTS, UNTIL_TTL_IS_OVER),
    "token-watchdog": World(
        "token-watchdog", (NO_EVENT, TIME_PASSES, PAUSE, KILL, FAILOVER), WHILE_RENEWED
    ),
    "fence-at-write": World("fence-at-write", (NO_EVENT, PAUSE), WHILE_RENEWED, fenced=True),
    "redis": World("redis", LOCK_EVENTS, WHILE_RENEWED, fenced=True),
    "redis-2-units": World("redis", (NO_EVENT, RETRY), WHILE_RENEWED, fenced=True, units=2),
    "row-lock": World("row-lock", (NO_EVENT, PAUSE, KILL)),
    "lock-then-read": World(
        "lock-then-read", (NO_EVENT,), WHILE_RENEWED, database="mariadb@repeatable-read"
    ),
}


class RecordedEvent(NamedTuple):
    """An event of a turn. Trace in recorder/live.py explains the kinds and their details."""

    buyer: str
    kind: str
    details: list[Any]


def make_event(event: Sequence[Any]) -> RecordedEvent:
    """Return a recorded event as a RecordedEvent.

    event  a list: the buyer, the kind, and then the details
    """
    return RecordedEvent(buyer=event[0], kind=event[1], details=list(event[2:]))


def read_events(turn: Mapping[str, Any]) -> list[RecordedEvent]:
    """Return the events of a turn, an entry of Moves."""
    return [make_event(event) for event in turn["did"]]


def read_worlds() -> dict[str, dict[str, Any]]:
    """Return the recording of each world, by the name of the world.

    A world is a strategy with its stock and its outside events.
    """
    return dict(json.loads(WORLDS_FILE.read_text()))


def format_recording(recording: object) -> str:
    """Return a recording as JSON with one line for each turn, so that diffs are readable."""
    return json.dumps(recording, separators=(",", ":")).replace('},"', '},\n"') + "\n"


def read_moves() -> dict[str, Moves]:
    """Return the recorded moves of each world, by the name of the world.

    A world is a strategy with its stock and its outside events.
    """
    return {name: recording["moves"] for name, recording in read_worlds().items()}


def make_length_sort_key(turns_made: str) -> tuple[int, str]:
    """Return the sort key that puts shorter schedules before longer ones."""
    return len(turns_made), turns_made


def sort_by_length(moves: Moves) -> Moves:
    """Return the moves in the order of their keys, the beginnings of schedules: shorter first."""
    return {turns_made: moves[turns_made] for turns_made in sorted(moves, key=make_length_sort_key)}


def list_beginnings(schedule: str) -> list[str]:
    """Return the beginnings of a schedule up to the whole: for `AAB`, these are `A`, `AA`, `AAB`.

    They are the keys of the schedule's turns in Moves.
    """
    return [schedule[:length] for length in range(1, len(schedule) + 1)]


def list_whole_schedules(moves: Moves) -> list[str]:
    """Return the whole schedules in `moves`: the keys that are not the beginning of another key."""
    beginnings = {turns_made[:-1] for turns_made in moves}
    return [turns_made for turns_made in moves if turns_made not in beginnings]


def has_ended_move(moves: Moves, turns_made: str, buyer: str) -> bool:
    """Return whether a buyer completes its move in the last turn of `turns_made`.

    A buyer that completes a move either stops before its next move, or ends its purchase. Returns
    False if `turns_made`, the beginning of a schedule, is not in `moves`.
    """
    if turns_made not in moves:
        return False
    return any(
        event.buyer == buyer and event.kind in ("stops", "ends")
        for event in read_events(moves[turns_made])
    )


def find_outside_event(schedule: str) -> str:
    """Return the turn of a schedule that is an outside event, or NO_EVENT if it has none."""
    return next((turn for turn in schedule if turn in FAULTS_BY_EVENT), NO_EVENT)


def oversells(moves: Moves, schedule: str, units: int = 1) -> bool:
    """Return whether there are more orders than units after a schedule.

    moves     what happened in each turn; see Moves
    schedule  a string of turns, such as `AAPBBG`
    units     the stock at the beginning
    """
    order_count = moves[schedule]["state"][1]
    return bool(order_count > units)


def is_stuck(moves: Moves, schedule: str) -> bool:
    """Return whether a buyer waits forever at the end of a schedule.

    moves     what happened in each turn; see Moves
    schedule  a string of turns, such as `AAPBBG`
    """
    return any(event.kind == "forever" for event in read_events(moves[schedule]))
