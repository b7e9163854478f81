"""The recorded schedules with an event of the world: recorded/worlds.json, read."""

import json
from collections.abc import Iterator
from typing import Any

from tools.site.recording import RECORDED

#: Who has moved so far -> what the last turn did, and the state that it left.
Moves = dict[str, dict[str, Any]]

WORLDS = RECORDED / "worlds.json"
#: A's process is stopped for longer than the ttl, and later goes on.
PAUSE = "P"
GOES_ON = "G"
#: Time passes until the ttl is over, while A's process runs.
TIME_PASSES = "T"
#: A's process is killed.
KILL = "K"
#: The server of the locks restarts empty.
RESTART = "R"
#: A buyer who waits goes on waiting while nobody else can move.
WAITS_ON = "W"
#: The events, each with the fault of the matrix that it is.
EVENTS = {TIME_PASSES: "slow", PAUSE: "pause", KILL: "crash", RESTART: "restart"}
#: The recorded strategies with their events; "" is the schedules without one.
STRATEGIES = {
    "none": ("", KILL),
    "setnx": ("", *EVENTS),
    "redis": ("", *EVENTS),
    "row-lock": ("", PAUSE, KILL),
}


def kept() -> dict[str, Moves]:
    """Return the recorded moves by strategy."""
    return dict(json.loads(WORLDS.read_text())["moves"])


def by_length(moves: Moves) -> Moves:
    return dict(sorted(moves.items(), key=lambda item: (len(item[0]), item[0])))


def whole_schedules(moves: Moves) -> list[str]:
    """Return the schedules that no other continues."""
    beginnings = {key[:-1] for key in moves}
    return [key for key in moves if key not in beginnings]


def choices(moves: Moves, turns_made: str) -> Iterator[str]:
    """Yield the turns that were recorded after these."""
    for key in moves:
        if key[:-1] == turns_made:
            yield key[-1]


def event_of(schedule: str) -> str:
    """Return the event of a schedule, or an empty string."""
    return next((turn for turn in schedule if turn in EVENTS), "")


def oversells(moves: Moves, schedule: str) -> bool:
    _, orders, _ = moves[schedule]["state"]
    return bool(orders > 1)


def is_stuck(moves: Moves, schedule: str) -> bool:
    """Return whether a buyer waits forever at the end of a schedule."""
    return any(event[1] == "forever" for event in moves[schedule]["did"])
