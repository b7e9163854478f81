"""A purchase that goes on one step at a time, when a person says so.

The thread of such a purchase stands at its stops until a permit for that stop arrives. Permits and
what the thread tells of itself go through Redis: the request that brings the next step may land in
another worker or on another node, where the thread is not. The database would need a second
connection and put statements of its own beside those that are being shown, files end at the
container, and both would have to be tidied up; these keys expire.
"""

from __future__ import annotations

import json
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import redis

#: Seconds that a buyer stands at a stop before it leaves: rolled back, nothing sold.
PATIENCE = 60.0
#: Seconds after which Redis forgets a round that nobody goes on with.
KEPT = 600
#: Point -> the stops there, in order. In the hold nothing happens, so it is at the point of the
#: check.
STOPS = {"after_read": ("checked", "held"), "before_commit": ("written",)}
LEAVE = "leave"


class LeftAlone(Exception):
    """The next step did not come in time, or another round began: rolled back, nothing sold."""


@dataclass(slots=True)
class Hand:
    """One buyer of one round, as its own thread sees it.

    round_id which round of steps it belongs to
    buyer    A or B
    client   the Redis that permits come through
    saw      the stock that it read, once it has
    """

    round_id: str
    buyer: str
    client: redis.Redis
    saw: int | None = None
    _told: dict[str, Any] = field(default_factory=dict)

    def tell(self, status: str, **facts: Any) -> None:
        """What everybody may know of this buyer from now on: it moves, stands or is done."""
        self._told = {"status": status, "since": time.time(), "saw": self.saw, **facts}
        with self.client.pipeline(transaction=False) as pipeline:
            pipeline.hset(board(self.round_id), self.buyer, json.dumps(self._told))
            pipeline.expire(board(self.round_id), KEPT)
            pipeline.execute()

    def stand(self, stop: str) -> None:
        """Stand there until its permit comes. Raises LeftAlone."""
        self.tell("standing", at=stop)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            # Shorter than the client's own timeout; a permit for an earlier stop is a double click.
            arrived = self.client.blpop([permits(self.round_id, self.buyer)], timeout=0.5)
            if arrived is None:
                continue
            permit = arrived[1].decode() if isinstance(arrived[1], bytes) else arrived[1]
            if permit == LEAVE:
                raise LeftAlone("another round began: rolled back, nothing sold")
            if permit == stop:
                self.tell("moving", after=stop)
                return
        raise LeftAlone(f"left alone for {PATIENCE:.0f} s: rolled back, nothing sold")


_hand: ContextVar[Hand | None] = ContextVar("hand", default=None)


def board(round_id: str) -> str:
    """Where the buyers of a round tell how far they are."""
    return f"page:steps:{round_id}"


def permits(round_id: str, buyer: str) -> str:
    """Where a buyer's permits arrive."""
    return f"page:steps:{round_id}:{buyer}"


def take(hand: Hand) -> None:
    """From now on this thread's purchase is stepped through."""
    _hand.set(hand)


def at_point(name: str) -> None:
    """Stop here if a person steps through this purchase. A hook of locks/points.py."""
    hand = _hand.get()
    if hand is None or name not in STOPS:
        return
    if name == "after_read" and hand.saw == 0:
        return  # sold out: there is nothing to hold or to write
    for stop in STOPS[name]:
        hand.stand(stop)


def hear(event: str, facts: dict[str, object]) -> None:
    """Note what the purchase found. A recorder of shop/record.py."""
    hand = _hand.get()
    if hand is None:
        return
    if event == "after_read":
        amount = facts["amount"]
        assert isinstance(amount, int)
        hand.saw = amount
    elif event == "acquire":
        hand.tell("moving", waits_for="lock")
