"""A purchase that goes on one step at a time, when a person says so.

The thread of such a purchase waits at its stops until a permit for that stop arrives. Permits and
the thread's state go through Redis: the request that brings the next step may land in
another worker or on another node, where the thread is not. The database would need a second
connection and put its own statements among those that are being shown, files end at the
container, and both would have to be tidied up; these keys expire.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from django.conf import settings
from redis.backoff import ConstantBackoff
from redis.retry import Retry

#: Point -> the stops there, in order. While a buyer pays nothing happens, so that stop is at the
#: point of the check.
STOPS = {"after_read": ("checked", "paid"), "before_commit": ("written",)}
LEAVE = "leave"
#: Seconds before a buyer asks again a Redis that does not answer, and how often it does.
PAUSE, TRIES = 0.5, 40
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
    """The reply to a command that may be executed twice. It is sent again for some 20 s: the round
    of a class should not end since Redis was silent for two. Raises redis.RedisError."""
    return Retry(ConstantBackoff(PAUSE), TRIES).call_with_retry(command, lambda error: None)


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
    client: Any
    saw: int | None = None

    def come(self) -> bool:
        """Publish that this buyer moves, unless a thread of its name does already; whether it was
        this one. If the reply to that is lost, it is known by its own value."""
        state = json.dumps({"status": "moving", "since": time.time(), "come": uuid.uuid4().hex})
        key = board(self.round_id)

        def claim() -> bool:
            self.client.hsetnx(key, self.buyer, state)
            return bool(self.client.hget(key, self.buyer) == state.encode())

        return until_answered(claim)

    def publish(self, status: str, **facts: Any) -> None:
        """Publish the state of this buyer: moving, stopped or done."""
        state = {"status": status, "since": time.time(), "saw": self.saw, **facts}
        key = board(self.round_id)
        until_answered(partial(self.client.hset, key, self.buyer, json.dumps(state)))
        until_answered(partial(self.client.expire, key, kept()))

    def wait_at(self, stop: str) -> None:
        """Wait there until its permit comes. Raises LeftAlone."""
        self.publish("stopped", at=stop)
        deadline = time.monotonic() + timeout()
        # Shorter than the client's own timeout; a permit for an earlier stop is a double click.
        ask = partial(self.client.blpop, [permits(self.round_id, self.buyer)], timeout=0.5)
        while time.monotonic() < deadline:
            _, permit = until_answered(ask) or (None, b"")
            if permit.decode() == LEAVE:
                raise LeftAlone("another round began: rolled back, nothing sold")
            if permit.decode() == stop:
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
