"""Recorded moves in words: what each move did, where each buyer is, and what it can do next.

A page shows these texts as they are: it computes none of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools.site.lock_state import FREE, describe_lock, find_believers
from tools.site.turn_lines import NO_WORLD, WRITING_STATEMENT, describe_outcome, list_lines
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
    find_event,
)

#: The text of the button for each outside event and its consequences (worlds.py).
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
#: Recorded event of a buyer -> the phase of its purchase that begins with this event.
PHASES_BY_KIND = {"setnx:before_expire": "sent", "acquired": "locked"}
#: BuyerProgress.halt -> the clause about the buyer.
HALT_CLAUSES = {
    "waits": "waits",
    "forever": "waits forever",
    "paused": "is paused",
    "killed": "is killed",
}


@dataclass(frozen=True, slots=True)
class BuyerProgress:
    """The progress of a buyer in its purchase.

    phase    new, sent (SETNX is sent, EXPIRE is next), locked, read, written or ended
    halt     what halts the buyer: waits, paused, killed or forever; empty if nothing does
    amount   the stock that the buyer read; None before its read
    outcome  the outcome of the purchase; empty before its end
    """

    phase: str = "new"
    halt: str = ""
    amount: int | None = None
    outcome: str = ""


def narrate(
    moves: Moves, world: World = NO_WORLD, *, choices: Sequence[str] = (), first_move: str = ""
) -> dict[str, dict[str, Any]]:
    """Return a view for each state of the page: the turns made so far -> what the page then shows.

    No turn was made at the beginning, whose key is "". A view is a dict with these keys:

    labels           the texts of the two buyers' buttons
    standing         where each buyer is, in words
    phases           the phase of each buyer, or what halts it
    can              the possible turns: those in `moves`, and `choices`
    no_event_reason  the text to show if `can` has no event
    lines            what the last turn did; missing at the beginning
    state            the stock, the number of orders, and the buyers who believe that they hold the
                     lock; missing at the beginning
    lock             the owner of the lock, as text; missing while the lock is free

    Args:
        moves: The moves to narrate. The moves after fewer turns come first.
        world: The world of the moves. NO_WORLD: the moves have no outside events.
        choices: The turns that are possible after the longest key of `moves`, if `moves` does not
            have the turns after it.
        first_move: The result of label_first_move() for all moves of the world. Needed only if
            `moves` are not all of them.
    """
    first_move = first_move or label_first_move(moves)
    longest = max(moves, key=len, default="")
    turns = list(BUYERS) + list(WORLD_BUTTONS)
    progress_by_turns = {"": dict.fromkeys(BUYERS, BuyerProgress())}

    def describe_buyers(turns_made: str) -> dict[str, Any]:
        """Return the part of a view that exists after every turn and at the beginning."""
        progress = progress_by_turns[turns_made]
        possible_turns = [
            turn
            for turn in turns
            if turns_made + turn in moves or (turns_made == longest and turn in choices)
        ]
        return {
            "labels": {name: _label_button(name, progress[name], first_move) for name in BUYERS},
            "standing": {name: _describe_standing(name, progress[name]) for name in BUYERS},
            "phases": {name: progress[name].halt or progress[name].phase for name in BUYERS},
            "can": possible_turns,
            "no_event_reason": _explain_no_event(turns_made, progress["A"], world),
        }

    views = {"": describe_buyers("")}
    for turns_made, move in moves.items():
        progress_before = progress_by_turns[turns_made[:-1]]
        progress_by_turns[turns_made] = _update_progress(
            progress_before, turns_made[-1], move["did"]
        )
        view = describe_buyers(turns_made)
        view["lines"] = [
            [line.buyer, line.kind, line.text] for line in list_lines(moves, turns_made, world)
        ]
        view["state"] = move["state"][:2] + [find_believers(moves, turns_made)]
        lock = describe_lock(moves, turns_made, world)
        if lock != FREE:
            view["lock"] = lock
        views[turns_made] = view
    return views


def _explain_no_event(turns_made: str, progress: BuyerProgress, world: World) -> str:
    """Return the reason to show if no event is possible after these turns.

    The page shows the reason only if no event is possible, which this function does not check.

    progress  the progress of A, the buyer whom outside events hit
    """
    if find_event(turns_made):
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


def _update_progress(
    progress: Mapping[str, BuyerProgress], turn: str, turn_events: list[list[Any]]
) -> dict[str, BuyerProgress]:
    """Return the progress of the buyers after a turn.

    turn         the letter of the turn: a buyer, or an outside event
    turn_events  what happened in the turn; see Moves in worlds.py
    """
    new_progress = dict(progress)
    if turn == PAUSE:
        new_progress["A"] = replace(progress["A"], halt="paused")
    if turn == GOES_ON:
        new_progress["A"] = replace(progress["A"], halt="")
    if turn == KILL:
        new_progress["A"] = replace(progress["A"], halt="killed")
    if turn == ASKS_AGAIN:
        new_progress["A"] = BuyerProgress()
    for event in turn_events:
        buyer, kind = event[:2]
        if buyer in BUYERS:
            new_progress[buyer] = _apply_event(new_progress[buyer], kind, event[2:])
    return new_progress


def _apply_event(progress: BuyerProgress, kind: str, facts: list[Any]) -> BuyerProgress:
    """Return the progress of a buyer after one of its events."""
    if kind in PHASES_BY_KIND:
        return replace(progress, phase=PHASES_BY_KIND[kind], halt="")
    if kind == "after_read":
        return replace(progress, phase="read", halt="", amount=facts[0])
    if kind == "sends" and progress.phase == "read" and WRITING_STATEMENT.match(facts[0]):
        return replace(progress, phase="written", halt="")
    if kind == "waits":
        return replace(progress, halt="waits")
    if kind == "forever":
        return replace(progress, halt="forever")
    if kind == "stops":  # the buyer is between two moves, so nothing halts it
        return replace(progress, halt="")
    if kind == "ends":
        return replace(progress, phase="ended", halt="", outcome=facts[0])
    return progress


def label_first_move(moves: Moves) -> str:
    """Return the text of a button for a buyer's first move, from the events of A's first turn."""
    events = [event[1] for event in moves["A"]["did"]]
    if "setnx:before_expire" in events:
        return "SETNX"
    if "acquired" in events and "after_read" not in events:
        return "take the lock"
    return "read the stock"


def _label_button(name: str, progress: BuyerProgress, first_move: str) -> str:
    """Return the text of a buyer's button: its next move, or why it cannot move."""
    if progress.halt:
        return f"{name} {HALT_CLAUSES[progress.halt]}"
    if progress.phase == "ended":
        return f"{name} is done"
    move_after_read = "write"
    if not progress.amount:  # a buyer who has read 0 buys nothing
        move_after_read = "leave"
    labels = {
        "new": first_move,
        "sent": "EXPIRE",
        "locked": "read the stock",
        "read": move_after_read,
        "written": "commit",
    }
    return f"{name}: {labels[progress.phase]}"


def _describe_standing(name: str, progress: BuyerProgress) -> str:
    """Return the progress of a buyer as a clause, such as `A has read 1`."""
    if progress.halt:
        return f"{name} {HALT_CLAUSES[progress.halt]}"
    phases = {
        "new": "has not begun",
        "sent": "has sent SETNX",
        "locked": "has taken the lock",
        "read": f"has read {progress.amount}",
        "written": "has written, but not committed",
        "ended": describe_outcome(progress.outcome),
    }
    return f"{name} {phases[progress.phase]}"
