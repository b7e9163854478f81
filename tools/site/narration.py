"""Recorded moves in words: what each move did, where each buyer is, and what it can do next.

A page shows these words; it computes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools.site.lock_state import FREE, believers, lock_text
from tools.site.turn_lines import NO_WORLD, WRITES, lines_of, outcome_text
from tools.site.worlds import (
    ASKS_AGAIN,
    BUYERS,
    FAILOVER,
    GOES_ON,
    KILL,
    PAUSE,
    RESTART,
    TIME_PASSES,
    WAITS_ON,
    Moves,
    World,
    event_of,
)

#: The button of each turn of the world.
WORLD_BUTTONS = {
    TIME_PASSES: "Time passes, longer than a ttl",
    PAUSE: "A's process is paused for longer than a ttl",
    GOES_ON: "A's process goes on",
    KILL: "A's process is killed",
    RESTART: "The locks' server restarts empty",
    FAILOVER: "The locks' server fails over",
    ASKS_AGAIN: "A's answer is lost, A asks again with the same key",
    WAITS_ON: "Wait",
}
#: The phase that an event begins.
PHASES = {"setnx:before_expire": "sent", "acquired": "locked"}


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


def narrate(
    moves: Moves, world: World = NO_WORLD, *, choices: Sequence[str] = (), first_move: str = ""
) -> dict[str, dict[str, Any]]:
    """Return the words of each turn, by the turns that were made.

    The empty key is the beginning. `labels` are those of the two buyers' buttons after the turn,
    `standing` says where each buyer is, and `can` names the turns that are possible then: those in
    `moves`, and `choices` after the longest key. `no_event` is the reason to show if `can` has no
    event. `lock` is left out while the lock is free. `first_move` is what first_move_of returns of
    all moves of the world, if these are not all.
    """
    first_move = first_move or first_move_of(moves)
    longest = max(moves, key=len, default="")
    turns = list(BUYERS) + list(WORLD_BUTTONS)

    def words_after(key: str) -> dict[str, Any]:
        progress = progress_by_key[key]
        possible = [
            turn for turn in turns if key + turn in moves or (key == longest and turn in choices)
        ]
        return {
            "labels": {name: _label(name, progress[name], first_move) for name in BUYERS},
            "standing": {name: _standing(name, progress[name]) for name in BUYERS},
            "phases": {name: progress[name].halt or progress[name].phase for name in BUYERS},
            "can": possible,
            "no_event": _why_no_event(key, progress["A"], world),
        }

    progress_by_key = {"": dict.fromkeys(BUYERS, BuyerProgress())}
    words = {"": words_after("")}
    for key, move in moves.items():
        progress_by_key[key] = _after(progress_by_key[key[:-1]], key[-1], move["did"])
        words[key] = words_after(key)
        words[key]["lines"] = [
            [line.buyer, line.kind, line.text] for line in lines_of(moves, key, world)
        ]
        words[key]["state"] = move["state"][:2] + [believers(moves, key)]
        lock = lock_text(moves, key, world)
        if lock != FREE:
            words[key]["lock"] = lock
    return words


def _why_no_event(key: str, progress: BuyerProgress, world: World) -> str:
    """Return the reason to show if no event is possible after the turns of `key`.

    Whether an event is possible is not checked here: `can` lists those that are.
    """
    if event_of(key):
        return "One event per try: go back to choose another."
    if ASKS_AGAIN in world.events:
        return "A has no order yet whose answer could be lost."
    if progress.phase == "new" and not progress.halt:
        return "A has not begun: an event comes between two moves of A."
    if progress.phase == "ended":
        return "A is done: an event comes between two moves of A."
    if progress.halt == "waits":
        return "A waits: an event comes between two moves of A."
    return ""


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
