"""The 20 orders of two buyers' moves, and the outcome of each, from the recorded moves."""

from __future__ import annotations

from itertools import combinations
from typing import Any

MOVES = 3
#: Every order in which two buyers can make their moves.
ORDERS = [
    "".join("A" if turn in hers else "B" for turn in range(2 * MOVES))
    for hers in combinations(range(2 * MOVES), MOVES)
]


def reached(moves: dict[str, dict[str, Any]], order: str) -> str:
    """The moves made in an order, with every buyer led to the end; those of a buyer who waits or
    has ended are passed over."""
    so_far = ""
    for buyer in [*order, *"AB" * 4 * MOVES]:
        so_far += buyer if so_far + buyer in moves else ""
    return so_far


def outcome(moves: dict[str, dict[str, Any]], order: str) -> tuple[str, list[str], str]:
    """`good` or `bad`; who has an order; who waits, or reads again, or is told sold out."""
    key = reached(moves, order)
    events = [event for n in range(len(key)) for event in moves[key[: n + 1]]["did"]]
    sold = sorted(event[0] for event in events if event[1:3] == ["ends", "sold"])
    waits = [event[0] for event in events if event[1] == "waits"]
    reads = [event[0] for event in events if event[1] == "after_read"]
    again = [buyer for buyer in "AB" if reads.count(buyer) > 1]
    remark = f"{waits[0]} waits" if waits else ""
    if again:
        remark = f"{again[0]} rereads"
    if not remark and len(sold) == 1:
        remark = f"{'AB'.replace(sold[0], '')} too late"
    return "bad" if len(sold) > 1 else "good", sold, remark
