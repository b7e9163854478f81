"""The texts that a page shows after each turn of a recorded schedule.

They say what the turn did, how far each buyer is in its purchase, and which turns are possible
next. A page computes none of these texts itself. worlds.py explains turns, schedules, outside
events and Moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools.site.lock_state import FREE, describe_lock, find_believers
from tools.site.turn_lines import NO_WORLD, WRITING_STATEMENT, describe_outcome, list_lines
from tools.site.worlds import (
    BUYERS,
    FAILOVER,
    KEEP_WAITING,
    KILL,
    PAUSE,
    RESTART,
    RESUME,
    RETRY,
    TIME_PASSES,
    Moves,
    RecordedEvent,
    World,
    find_outside_event,
    read_events,
)

#: Outside event, or what follows one (worlds.py) -> the text of its button.
EVENT_BUTTONS = {
    TIME_PASSES: "Time passes, longer than a ttl",
    PAUSE: "A's process is paused for longer than a ttl",
    RESUME: "A's process continues",
    KILL: "A's process is killed",
    RESTART: "The locks' server restarts empty",
    FAILOVER: "The locks' server fails over",
    RETRY: "A's answer is lost, A retries with the same key",
    KEEP_WAITING: "Wait",
}
#: Kind of a buyer's event -> the phase of its purchase (BuyerProgress.phase) that the event begins.
PHASES_BY_KIND = {"setnx:before_expire": "sent", "acquired": "locked"}
#: BuyerProgress.obstacle -> the clause about the buyer.
OBSTACLE_CLAUSES = {
    "waits": "waits",
    "forever": "waits forever",
    "paused": "is paused",
    "killed": "is killed",
}


@dataclass(frozen=True, slots=True)
class BuyerProgress:
    """How far a buyer is in its purchase.

    phase     new, sent (the buyer has sent SETNX, and not yet EXPIRE), locked, read, written or
              ended
    obstacle  why the buyer cannot move: waits, forever (it waits forever), paused or killed; empty
              if it can move
    amount    the stock that the buyer read; None before its read
    outcome   the outcome of the purchase; empty before its end
    """

    phase: str = "new"
    obstacle: str = ""
    amount: int | None = None
    outcome: str = ""


def describe_turns(
    moves: Moves, world: World = NO_WORLD, *, next_turns: Sequence[str] = (), first_move: str = ""
) -> dict[str, dict[str, Any]]:
    """Return what a page shows after each turn: the turns made so far, such as `AAB` -> a view.

    The key "" has the view before the first turn. A view is a dict with these keys:

    labels           the texts of the two buyers' buttons
    standing         how far each buyer is in its purchase, in words
    phases           BuyerProgress.obstacle or, if it is empty, BuyerProgress.phase of each buyer
    can              the turns that are possible next
    no_event_reason  the text to show if no outside event is possible next
    lines            the lines that describe the last turn; missing before the first turn
    state            the stock, the number of orders, and the buyers who believe that they hold the
                     lock; missing before the first turn
    lock             the owner of the lock, as text; missing while the lock is free

    Args:
        moves: Recorded moves, the shorter keys first.
        world: The world of the moves. NO_WORLD: the moves have no outside events.
        next_turns: The turns that are possible after the longest key of `moves`. Needed only if
            `moves` does not have these turns, as while a schedule is played live.
        first_move: The result of label_first_move() for all moves of the world. Needed only if
            `moves` lacks some of the world's moves.
    """
    first_move = first_move or label_first_move(moves)
    longest = max(moves, key=len, default="")
    turns = list(BUYERS) + list(EVENT_BUTTONS)
    progress_by_turns = {"": dict.fromkeys(BUYERS, BuyerProgress())}

    def make_view(turns_made: str) -> dict[str, Any]:
        """Return a view without the parts that are missing before the first turn."""
        progress = progress_by_turns[turns_made]
        possible_turns = [
            turn
            for turn in turns
            if turns_made + turn in moves or (turns_made == longest and turn in next_turns)
        ]
        return {
            "labels": {name: _label_button(name, progress[name], first_move) for name in BUYERS},
            "standing": {name: _describe_progress(name, progress[name]) for name in BUYERS},
            "phases": {name: progress[name].obstacle or progress[name].phase for name in BUYERS},
            "can": possible_turns,
            "no_event_reason": _explain_impossible_events(turns_made, progress["A"], world),
        }

    views = {"": make_view("")}
    for turns_made, turn in moves.items():
        progress_before = progress_by_turns[turns_made[:-1]]
        progress_by_turns[turns_made] = _update_progress(
            progress_before, turns_made[-1], read_events(turn)
        )
        view = make_view(turns_made)
        view["lines"] = [
            [line.buyer, line.kind, line.text] for line in list_lines(moves, turns_made, world)
        ]
        stock_left, orders = turn["state"][:2]
        view["state"] = [stock_left, orders, find_believers(moves, turns_made)]
        lock = describe_lock(moves, turns_made, world)
        if lock != FREE:
            view["lock"] = lock
        views[turns_made] = view
    return views


def _explain_impossible_events(turns_made: str, progress: BuyerProgress, world: World) -> str:
    """Return the reason why no outside event is possible after these turns.

    This function does not check whether an event is possible. The page shows the reason only if no
    event is possible.

    progress  the progress of A, the only buyer whom outside events disturb
    """
    if find_outside_event(turns_made):
        return "One event per try: go back to choose another."
    if RETRY in world.events:
        return "A has no order yet whose answer could be lost."
    if progress.phase == "new" and not progress.obstacle:
        return "A has not begun: an event comes between two moves of A."
    if progress.phase == "ended":
        return "A is done: an event comes between two moves of A."
    if progress.obstacle == "waits":
        return "A waits: an event comes between two moves of A."
    return ""


def _update_progress(
    progress: Mapping[str, BuyerProgress], turn: str, turn_events: Sequence[RecordedEvent]
) -> dict[str, BuyerProgress]:
    """Return the progress of each buyer after a turn.

    progress     buyer -> its progress before the turn
    turn         the letter of the turn: a buyer, or an outside event
    """
    new_progress = dict(progress)
    if turn == PAUSE:
        new_progress["A"] = replace(progress["A"], obstacle="paused")
    if turn == RESUME:
        new_progress["A"] = replace(progress["A"], obstacle="")
    if turn == KILL:
        new_progress["A"] = replace(progress["A"], obstacle="killed")
    if turn == RETRY:
        new_progress["A"] = BuyerProgress()
    for event in turn_events:
        if event.buyer in BUYERS:
            new_progress[event.buyer] = _apply_event(
                new_progress[event.buyer], event.kind, event.details
            )
    return new_progress


def _apply_event(progress: BuyerProgress, kind: str, details: list[Any]) -> BuyerProgress:
    """Return the progress of a buyer after one of its events.

    kind     the kind of the event; Trace in recorder/live.py explains all kinds
    details  the amount of `after_read`, the statement of `sends`, or the outcome of `ends`
    """
    if kind in PHASES_BY_KIND:
        return replace(progress, phase=PHASES_BY_KIND[kind], obstacle="")
    if kind == "after_read":
        (amount,) = details
        return replace(progress, phase="read", obstacle="", amount=amount)
    if kind == "sends" and progress.phase == "read":
        (statement,) = details
        if WRITING_STATEMENT.match(statement):
            return replace(progress, phase="written", obstacle="")
    if kind == "waits":
        return replace(progress, obstacle="waits")
    if kind == "forever":
        return replace(progress, obstacle="forever")
    if kind == "stops":  # the buyer has completed its move, so it can make the next
        return replace(progress, obstacle="")
    if kind == "ends":
        (outcome,) = details
        return replace(progress, phase="ended", obstacle="", outcome=outcome)
    return progress


def label_first_move(moves: Moves) -> str:
    """Return the text of the button for a buyer's first move.

    It depends on what A does in its first turn. The first move of B is the same.

    moves  what happened in each turn; see Moves in worlds.py
    """
    kinds = [event.kind for event in read_events(moves["A"])]
    if "setnx:before_expire" in kinds:
        return "SETNX"
    if "acquired" in kinds and "after_read" not in kinds:
        return "take the lock"
    return "read the stock"


def _label_button(name: str, progress: BuyerProgress, first_move: str) -> str:
    """Return the text of a buyer's button: its next move, or why it cannot move."""
    if progress.obstacle:
        return f"{name} {OBSTACLE_CLAUSES[progress.obstacle]}"
    if progress.phase == "ended":
        return f"{name} is done"
    move_after_read = "write"
    if not progress.amount:  # a buyer who has read 0 buys nothing
        move_after_read = "leave"
    # The phase that the buyer has reached -> its next move.
    labels = {
        "new": first_move,
        "sent": "EXPIRE",
        "locked": "read the stock",
        "read": move_after_read,
        "written": "commit",
    }
    return f"{name}: {labels[progress.phase]}"


def _describe_progress(name: str, progress: BuyerProgress) -> str:
    """Return the progress of a buyer as a clause, such as `A has read 1`."""
    if progress.obstacle:
        return f"{name} {OBSTACLE_CLAUSES[progress.obstacle]}"
    phase_clauses = {
        "new": "has not begun",
        "sent": "has sent SETNX",
        "locked": "has taken the lock",
        "read": f"has read {progress.amount}",
        "written": "has written, but not committed",
        "ended": describe_outcome(progress.outcome),
    }
    return f"{name} {phase_clauses[progress.phase]}"
