"""Recorded moves in words: what each move did, where each buyer is, and what it can do next.

A page shows these words; it computes nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    WAITS_ON,
    Moves,
)

OUTCOMES = {
    "sold": "has an order",
    "sold_out": "is told: sold out",
    "busy": "is told: try again",
    "lost": "lost the lock: nothing sold",
    "replayed": "is given the order that it has",
}
#: The button of each turn of the world.
WORLD_BUTTONS = {
    TIME_PASSES: "Time passes, past the ttl",
    PAUSE: "A's process is paused, past the ttl",
    GOES_ON: "A's process goes on",
    KILL: "A's process is killed",
    RESTART: "The locks' server restarts empty",
    FAILOVER: "The locks' server fails over",
    ASKS_AGAIN: "A's answer is lost, A asks again",
    WAITS_ON: "Wait",
}
#: The line that a turn of the world becomes, and the buyer under whom it stands, or both.
WORLD_LINES = {
    TIME_PASSES: ("", "time passes: the ttl is over"),
    PAUSE: ("A", "is paused, until the ttl is over"),
    GOES_ON: ("A", "goes on where it was"),
    KILL: ("A", "is killed"),
    RESTART: ("", "the locks' server has restarted, without any key"),
    FAILOVER: ("", "a replica without the lock answers in the place of the locks' server"),
    ASKS_AGAIN: ("A", "does not get its answer, and asks again with the same key"),
}
#: The events of a buyer that become a line by themselves.
SENTENCES = {
    "setnx:before_expire": "has sent SETNX, and not yet EXPIRE",
    "acquired": "has the lock",
    "released": "gives the lock back",
    "unlocked_before_commit": "gives the lock back before it has committed",
    "reserved": "has reserved a unit in Redis",
    "forever": "waits forever",
}
#: The phase that an event begins.
PHASES = {"setnx:before_expire": "sent", "acquired": "locked"}
WRITES = re.compile("UPDATE|INSERT|DELETE")
#: Statements that wait for what another transaction has not committed.
WAITS_FOR_A_ROW = re.compile("UPDATE|INSERT|DELETE|FOR UPDATE|pg_advisory")
#: The state before the first turn, in which the lock is free.
START = (0, 0, "", "")


@dataclass(frozen=True, slots=True)
class BuyerProgress:
    """The progress of a buyer in its purchase.

    phase    new, sent (SETNX, and EXPIRE is next), locked, read, written or ended
    halt     what keeps it from moving: waits, paused, killed, forever, or nothing
    amount   the stock that it read
    outcome  how it ended
    """

    phase: str = "new"
    halt: str = ""
    amount: int | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class TurnLine:
    """A line under a buyer; without a name it is about both.

    kind  sql, end, world, or nothing
    """

    buyer: str
    kind: str
    text: str


def narrate(
    moves: Moves, *, choices: Sequence[str] = (), first_move: str = ""
) -> dict[str, dict[str, Any]]:
    """Return the words of each turn, by the turns that were made.

    The empty key is the beginning. `labels` are those of the two buyers' buttons after the turn,
    `standing` says where each buyer is, and `can` names the turns that are possible then: those in
    `moves`, and `choices` after the longest key. `first_move` is what first_move_of returns of all
    moves of the world, if these are not all.
    """
    first_move = first_move or first_move_of(moves)
    longest = max(moves, key=len, default="")
    turns = list(BUYERS) + list(WORLD_BUTTONS)

    def words_after(key: str) -> dict[str, Any]:
        progress = progress_by_key[key]
        return {
            "labels": {name: _label(name, progress[name], first_move) for name in BUYERS},
            "standing": {name: _standing(name, progress[name]) for name in BUYERS},
            "phases": {name: progress[name].halt or progress[name].phase for name in BUYERS},
            "can": [
                turn
                for turn in turns
                if key + turn in moves or (key == longest and turn in choices)
            ],
        }

    progress_by_key = {"": dict.fromkeys(BUYERS, BuyerProgress())}
    words = {"": words_after("")}
    for key, move in moves.items():
        progress_by_key[key] = _after(progress_by_key[key[:-1]], key[-1], move["did"])
        words[key] = words_after(key)
        words[key]["lines"] = [[line.buyer, line.kind, line.text] for line in lines_of(moves, key)]
        words[key]["state"] = move["state"]
    return words


def lines_of(moves: Moves, key: str) -> list[TurnLine]:
    """Return the lines of the last turn of `key`."""
    lines = []
    if key[-1] in WORLD_LINES:
        buyer, text = WORLD_LINES[key[-1]]
        lines.append(TurnLine(buyer, "world", text))
    for event in moves[key]["did"]:
        buyer, kind = event[:2]
        if buyer not in BUYERS:
            continue
        if kind == "sends":
            lines.append(TurnLine(buyer, "sql", event[2]))
        elif kind == "waits":
            lines.append(TurnLine(buyer, "", _reason_to_wait(moves, key, buyer)))
        elif kind == "ends":
            lines.append(TurnLine(buyer, "end", outcome_text(event[2])))
        elif kind == "after_read":
            rest = "there is one" if event[2] else "nothing left"
            lines.append(TurnLine(buyer, "", f"reads {event[2]}: {rest}"))
        elif kind == "released" and deletes_others_lock(moves, key):
            lines.append(TurnLine(buyer, "", "deletes the lock, which is the other's"))
        elif kind in SENTENCES:
            lines.append(TurnLine(buyer, "", SENTENCES[kind]))
    return lines


def deletes_others_lock(moves: Moves, key: str) -> bool:
    """Return whether the buyer who moved last deleted the lock that the other one holds."""
    if key[-1] not in BUYERS or not key[:-1]:
        return False
    other = OTHER_BUYER[key[-1]]
    state_before = moves[key[:-1]]["state"]
    state = moves[key]["state"]
    return _owner(state_before) == other and _owner(state) != other and other in state[2]


def _owner(state: Sequence[Any]) -> str:
    """Return the owner of the lock; empty where there is none, or none was recorded."""
    if len(state) < 4:
        return ""
    return str(state[3])


def outcome_text(outcome: str) -> str:
    """Return the end of a purchase in words."""
    return OUTCOMES.get(outcome, f"is told: {outcome.replace('_', ' ')}")


def _reason_to_wait(moves: Moves, key: str, buyer: str) -> str:
    """Return the sentence of a buyer who waits: for the lock, or for a row of the database."""
    other = OTHER_BUYER[buyer]
    statements = [event[2] for event in moves[key]["did"] if event[:2] == [buyer, "sends"]]
    if statements and WAITS_FOR_A_ROW.search(statements[-1]):
        return f"waits: the database keeps what {other} has not committed"
    state_before = START
    if key[:-1]:
        state_before = moves[key[:-1]]["state"]
    if other == _owner(state_before) or other in state_before[2]:
        return f"waits: the lock is {other}'s"
    return "waits for the lock"


def _after(
    progress: Mapping[str, BuyerProgress], mover: str, did: list[list[Any]]
) -> dict[str, BuyerProgress]:
    """Return the progress of the buyers after a turn."""
    new_progress = dict(progress)
    if mover == PAUSE:
        new_progress["A"] = replace(progress["A"], halt="paused")
    if mover == GOES_ON:
        new_progress["A"] = replace(progress["A"], halt="")
    if mover == KILL:
        new_progress["A"] = replace(progress["A"], halt="killed")
    if mover == ASKS_AGAIN:
        new_progress["A"] = BuyerProgress()
    for event in did:
        buyer, kind = event[:2]
        if buyer in BUYERS:
            new_progress[buyer] = _moved(new_progress[buyer], kind, event[2:])
    return new_progress


def _moved(progress: BuyerProgress, kind: str, facts: list[Any]) -> BuyerProgress:
    """Return the progress of a buyer after one of its events."""
    if kind in PHASES:
        return replace(progress, phase=PHASES[kind], halt="")
    if kind == "after_read":
        return replace(progress, phase="read", halt="", amount=facts[0])
    if kind == "sends" and progress.phase == "read" and WRITES.match(facts[0]):
        return replace(progress, phase="written", halt="")
    if kind == "waits":
        return replace(progress, halt="waits")
    if kind == "forever":
        return replace(progress, halt="forever")
    if kind == "stops":
        return replace(progress, halt="")
    if kind == "ends":
        return replace(progress, phase="ended", halt="", outcome=facts[0])
    return progress


def first_move_of(moves: Moves) -> str:
    """Return the name of a buyer's first move, which follows from what it did."""
    events = [event[1] for event in moves["A"]["did"]]
    if "setnx:before_expire" in events:
        return "SETNX"
    if "acquired" in events and "after_read" not in events:
        return "take the lock"
    return "read the stock"


def _label(name: str, progress: BuyerProgress, first_move: str) -> str:
    """Return the text of a buyer's button."""
    halts = {
        "waits": f"{name} waits",
        "forever": f"{name} waits forever",
        "paused": f"{name} is paused",
        "killed": f"{name} is killed",
    }
    if progress.halt:
        return halts[progress.halt]
    labels = {
        "new": first_move,
        "sent": "EXPIRE",
        "locked": "read the stock",
        "read": "write" if progress.amount else "leave",
        "written": "commit",
    }
    if progress.phase == "ended":
        return f"{name} is done"
    return f"{name}: {labels[progress.phase]}"


def _standing(name: str, progress: BuyerProgress) -> str:
    """Return the progress of a buyer as a part of a sentence."""
    halts = {
        "waits": "waits",
        "forever": "waits forever",
        "paused": "is paused",
        "killed": "is killed",
    }
    phases = {
        "new": "has not begun",
        "sent": "has sent SETNX",
        "locked": "has taken the lock",
        "read": f"has read {progress.amount}",
        "written": "has written, but not committed",
        "ended": outcome_text(progress.outcome),
    }
    return f"{name} {halts.get(progress.halt) or phases[progress.phase]}"
