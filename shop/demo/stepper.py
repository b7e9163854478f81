"""A purchase that goes on one step at a time, when a person says so.

The thread of such a purchase waits at its stops until a permit for that stop arrives. Permits and
the thread's state go through Redis: the request that brings the next step may land in
another worker or on another node, where the thread is not. The database would need a second
connection and put statements of its own beside those that are being shown, files end at the
container, and both would have to be tidied up; these keys expire.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import redis
from django.conf import settings

#: Point -> the stops there, in order. While a buyer pays nothing happens, so that stop is at the
#: point of the check.
STOPS = {"after_read": ("checked", "paid"), "before_commit": ("written",)}
LEAVE = "leave"
#: Seconds for which a buyer asks a Redis again that does not answer, and between two times.
ASK_AGAIN, PAUSE = 20.0, 0.1
T = TypeVar("T")


def timeout() -> float:
    """Seconds that a buyer waits at a stop before it leaves: rolled back, nothing sold."""
    return float(settings.SHOP_DEMO_STEP_TIMEOUT)


def kept() -> int:
    """Seconds after which Redis forgets a round that nobody continues."""
    return max(600, round(2 * timeout()))


class LeftAlone(Exception):
    """The next step did not come in time, or another round began: rolled back, nothing sold."""


def until_answered(command: Callable[[], T]) -> T:
    """The reply to a command that may be executed twice. It is sent again for ASK_AGAIN seconds:
    the round of a class should not end since Redis was silent for two. Raises redis.RedisError."""
    deadline = time.monotonic() + ASK_AGAIN
    while True:
        try:
            return command()
        except (redis.ConnectionError, redis.TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)


@dataclass(slots=True)
class SteppedBuyer:
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

    def come(self) -> bool:
        """Publish that this buyer moves, unless a thread of its name does already; whether it was
        this one. If the reply to that is lost, it is known by its own value."""
        state = json.dumps({"status": "moving", "since": time.time(), "come": uuid.uuid4().hex})
        key = board(self.round_id)

        def claim() -> bool:
            self.client.hsetnx(key, self.buyer, state)
            there = self.client.hget(key, self.buyer)
            return (there.decode() if isinstance(there, bytes) else there) == state

        return until_answered(claim)

    def publish(self, status: str, **facts: Any) -> None:
        """Publish the state of this buyer: moving, stopped or done."""
        state = {"status": status, "since": time.time(), "saw": self.saw, **facts}

        def publish() -> None:
            with self.client.pipeline(transaction=False) as pipeline:
                pipeline.hset(board(self.round_id), self.buyer, json.dumps(state))
                pipeline.expire(board(self.round_id), kept())
                pipeline.execute()

        until_answered(publish)

    def wait_at(self, stop: str) -> None:
        """Wait there until its permit comes. Raises LeftAlone."""
        self.publish("stopped", at=stop)
        deadline = time.monotonic() + timeout()
        while time.monotonic() < deadline:
            # Shorter than the client's own timeout; a permit for an earlier stop is a double click.
            try:
                arrived = self.client.blpop([permits(self.round_id, self.buyer)], timeout=0.5)
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(PAUSE)
                continue
            if arrived is None:
                continue
            permit = arrived[1].decode() if isinstance(arrived[1], bytes) else arrived[1]
            if permit == LEAVE:
                raise LeftAlone("another round began: rolled back, nothing sold")
            if permit == stop:
                self.publish("moving", after=stop)
                return
        raise LeftAlone(f"left alone for {timeout():.0f} s: rolled back, nothing sold")


_buyer: ContextVar[SteppedBuyer | None] = ContextVar("buyer", default=None)


def board(round_id: str) -> str:
    """The key of the states of a round's buyers."""
    return f"page:steps:{round_id}"


def permits(round_id: str, buyer: str) -> str:
    """The key of a buyer's permits."""
    return f"page:steps:{round_id}:{buyer}"


def step_through(buyer: SteppedBuyer) -> None:
    """From now on this thread's purchase is stepped through."""
    _buyer.set(buyer)


def at_point(name: str, facts: Mapping[str, object]) -> None:
    """Note what the purchase found here, and stop it if a person steps through it."""
    buyer = _buyer.get()
    if buyer is None:
        return
    if name == "acquire":
        buyer.publish("moving", waits_for="lock")
    if name == "acquired":  # what it waits for from now on is the database
        buyer.publish("moving", waits_for="database")
    if name == "after_read":
        amount = facts["amount"]
        assert isinstance(amount, int)
        buyer.saw = amount
        if amount == 0:
            return  # sold out: there is nothing to pay or to write
    for stop in STOPS.get(name, ()):
        buyer.wait_at(stop)
