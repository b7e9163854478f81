"""The recorded schedules with an outside event, which recorded/worlds.json contains.

An outside event is a pause, the end of a process, a restart of the locks' server, or the like. A
world is a strategy with its database, its stock and its events; its schedules are recorded
together. A turn is one letter of a schedule: the next move of a buyer, or an outside event.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.stack.databases import POSTGRES

#: The turns so far -> the events that the last turn caused (`did`), and the `state` after it. For
#: the events see Trace in recorder/live.py. A state is a list: the stock, the number of orders, the
#: buyers who believe to hold the lock, and the buyer whose token the locks' server has.
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
#: A's paused process goes on.
GOES_ON = "G"
#: Time passes until the ttl is over, while A's process runs.
TIME_PASSES = "T"
#: A's process is killed.
KILL = "K"
#: The server of the locks restarts empty.
RESTART = "R"
#: The server of the locks dies, and a replica without the lock takes its address.
FAILOVER = "F"
#: A has bought, its answer is lost, and A asks again with the same key.
ASKS_AGAIN = "L"
#: The waiting buyer goes on waiting, because no other buyer can move.
WAITS_ON = "W"
#: Outside event -> the fault of `make faults` that corresponds to it.
EVENTS = {
    TIME_PASSES: "slow",
    PAUSE: "pause",
    KILL: "crash",
    RESTART: "restart",
    FAILOVER: "failover",
    ASKS_AGAIN: "unknown-commit",
}


#: How long a lock lasts on its server if its holder does not release it.
UNTIL_DELETED = "until it is deleted"
UNTIL_TTL_IS_OVER = "until its ttl is over"
WHILE_RENEWED = "while its holder's process renews it"


@dataclass(frozen=True, slots=True)
class World:
    """A strategy, its database, its stock and its events, whose schedules are recorded together.

    events         a schedule has at most one of these events; NO_EVENT stands for schedules without
                   an event
    lock_duration  one of the three texts above; empty if the strategy has no lock on a lock server
    fenced         whether its lock grants fences, and the database checks them
    units          the stock at the beginning
    database       one of loadtest.stack.databases
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


#: The event of a schedule without an outside event.
NO_EVENT = ""
#: The events of a strategy with a lock on a server.
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
    "redis-2-units": World("redis", (NO_EVENT, ASKS_AGAIN), WHILE_RENEWED, fenced=True, units=2),
    "row-lock": World("row-lock", (NO_EVENT, PAUSE, KILL)),
    "lock-then-read": World(
        "lock-then-read", (NO_EVENT,), WHILE_RENEWED, database="mariadb@repeatable-read"
    ),
}


def read_worlds() -> dict[str, dict[str, Any]]:
    """Return the recordings by the name of their world."""
    return dict(json.loads(WORLDS_FILE.read_text()))


def format_recording(data: object) -> str:
    """Return recorded data as JSON, with a line for each turn, for the sake of diffs."""
    return json.dumps(data, separators=(",", ":")).replace('},"', '},\n"') + "\n"


def read_moves() -> dict[str, Moves]:
    """Return the recorded moves by the name of their world."""
    return {name: recording["moves"] for name, recording in read_worlds().items()}


def shorter_first(turns_made: str) -> tuple[int, str]:
    """Return the sort key that puts shorter schedules before longer ones."""
    return len(turns_made), turns_made


def sort_by_length(moves: Moves) -> Moves:
    """Return the moves with the shorter schedules first."""
    return {turns_made: moves[turns_made] for turns_made in sorted(moves, key=shorter_first)}


def list_whole_schedules(moves: Moves) -> list[str]:
    """Return the whole schedules among the keys of `moves`; the other keys begin these."""
    beginnings = {turns_made[:-1] for turns_made in moves}
    return [turns_made for turns_made in moves if turns_made not in beginnings]


def has_ended_move(moves: Moves, turns_made: str, buyer: str) -> bool:
    """Return whether a buyer finishes its move, or its purchase, in the last of these turns.

    A move is finished when the buyer stops at the next point. False if the recording does not have
    these turns.
    """
    if turns_made not in moves:
        return False
    turn_events = moves[turns_made]["did"]
    return any(event[0] == buyer and event[1] in ("stops", "ends") for event in turn_events)


def find_event(schedule: str) -> str:
    """Return the event of a schedule, or NO_EVENT."""
    return next((turn for turn in schedule if turn in EVENTS), NO_EVENT)


def oversells(moves: Moves, schedule: str, units: int = 1) -> bool:
    """Return whether there are more orders than units after a schedule."""
    orders = moves[schedule]["state"][1]
    return bool(orders > units)


def is_stuck(moves: Moves, schedule: str) -> bool:
    """Return whether a buyer waits forever at the end of a schedule."""
    return any(event[1] == "forever" for event in moves[schedule]["did"])
