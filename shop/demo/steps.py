"""Two buyers and one unit, one step at a time, against the real database.

A round has a lock and the buyers A and B. Each is a thread that runs the real check_out() on a
connection of its own, and waits at its stops until the permit for that stop arrives. There is one
round at a time; a new one sends the buyers of the last one home.

Permits and the buyers' states go through Redis: the request that brings the next step may land in
another worker or on another node, where the thread is not. The database would need a second
connection and put its own statements among those that are being shown, files end at the
container, and both would have to be tidied up; these keys expire.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from django.conf import settings
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from shop.errors import BadInput, ShopError
from shop.ops.connections import own_connection
from shop.ops.redis import locks_client
from shop.sale import opening
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt

logger = logging.getLogger("shop.demo.steps")

#: Not the rush's apples.
PRODUCT = "last-unit"
BUYERS = ("A", "B")
#: Point -> the stops there, in order. While a buyer pays nothing happens, so that stop is at the
#: point of the check.
STOPS = {"after_read": ("checked", "paid"), "before_commit": ("written",)}
#: The key of the round that is on. Seconds after which Redis forgets one that nobody continues.
ROUND, KEPT = "page:steps", 3_600
#: Seconds before a buyer asks again a Redis that does not answer, and how often it does.
PAUSE, TRIES = 0.5, 40
#: Seconds without an answer after which a buyer that moves counts as blocked.
BLOCKED_AFTER = 0.4
#: Seconds for a buyer who comes to be seen, before the first press of its button is answered.
HAS_COME = 3.0
#: Seconds for a buyer to connect to PostgreSQL: nobody else waits for it, and on a machine that is
#: busy the shop's own few would end the round.
CONNECT_TIMEOUT = 30
T = TypeVar("T")


class NotNow(ShopError):
    text = "This buyer cannot take a step now. Wait until it has stopped, or begin a new round."
    status = 409


class LeftAlone(Exception):
    """The next step did not come in time, or another round began: rolled back, nothing sold."""


def timeout() -> float:
    """Seconds that a buyer waits at a stop before it leaves: rolled back, nothing sold."""
    return float(settings.SHOP_DEMO_STEP_TIMEOUT)


# --- the page's side ----------------------------------------------------------------------------


def begin(lock: str) -> str:
    """A new round with one unit on the shelf; its id. Those who are still inside roll back."""
    client = locks_client()
    client.delete(ROUND)
    opening.restock(product=PRODUCT, amount=1, lock=lock)
    round_id = uuid.uuid4().hex
    client.set(ROUND, json.dumps({"round": round_id, "lock": lock}), ex=KEPT)
    return round_id


def step(round_id: str, buyer: str) -> None:
    """Let a buyer take its next step. Raises NotNow, or BadInput."""
    if buyer not in BUYERS:
        raise BadInput("unknown buyer", allowed=BUYERS)
    client = locks_client()
    now = current()
    if now is None or now["round"] != round_id:
        raise NotNow("this round is over; begin a new one")
    client.expire(ROUND, KEPT)
    at = _parsed(client.hget(board(round_id), buyer))
    if at is None:
        stepped = SteppedBuyer(round_id, buyer, now["lock"])
        threading.Thread(target=stepped.run, daemon=True).start()
        stepped.has_come.wait(HAS_COME)
        return
    if at["status"] != "stopped":
        raise NotNow
    permit(round_id, buyer, at["at"])


def permit(round_id: str, buyer: str, stop: str) -> None:
    """Let a buyer leave this stop. One for an earlier stop is a double click, and does nothing."""
    client = locks_client()
    client.rpush(permits(round_id, buyer), stop)
    client.expire(permits(round_id, buyer), KEPT)


def current() -> dict[str, Any] | None:
    """Round and lock of the round that is on."""
    return _parsed(locks_client().get(ROUND))


def state() -> dict[str, Any] | None:
    """The round that is on and how far its buyers are; None where there is none.

    A buyer is `ready`, `moving`, `blocked`, `stopped` (`at` a stop) or `done` (`outcome`).
    Blocked, it `waits_for` the lock or the database. `left_s`: seconds until it gives up.
    """
    now = current()
    if now is None:
        return None
    states = dict(zip(BUYERS, locks_client().hmget(board(now["round"]), BUYERS), strict=True))
    return {**now, "buyers": {buyer: _seen(_parsed(text)) for buyer, text in states.items()}}


def _seen(state: dict[str, Any] | None) -> dict[str, Any]:
    if state is None:
        return {"status": "ready"}
    if state["status"] == "done":
        return state
    limit = timeout()
    if state["status"] == "moving":
        if time.time() - state["since"] <= BLOCKED_AFTER:
            return state
        state = {"waits_for": "database", **state, "status": "blocked"}
        limit = settings.SHOP_LOCK_WAIT if state["waits_for"] == "lock" else limit
    return {**state, "left_s": max(0.0, round(state["since"] + limit - time.time(), 1))}


def _parsed(text: bytes | str | None) -> dict[str, Any] | None:
    return None if text is None else dict(json.loads(text))


def board(round_id: str) -> str:
    """The key of the states of a round's buyers."""
    return f"{ROUND}:{round_id}"


def permits(round_id: str, buyer: str) -> str:
    """The key of a buyer's permits."""
    return f"{ROUND}:{round_id}:{buyer}"


# --- a buyer's side -----------------------------------------------------------------------------


def until_answered(command: Callable[[], T]) -> T:
    """The reply to a command that may be executed twice. It is sent again for some 20 s: the round
    of a class should not end since Redis was silent for two. Raises redis.RedisError."""
    return Retry(ConstantBackoff(PAUSE), TRIES).call_with_retry(command, lambda error: None)


class SteppedBuyer:
    """One buyer of one round, in a thread of its own."""

    def __init__(self, round_id: str, name: str, lock: str) -> None:
        self.round_id = round_id
        self.name = name
        self.lock = lock
        self.saw: int | None = None  # the stock, once it has read it
        self.has_come = threading.Event()
        self._client = locks_client()

    def run(self) -> None:
        """Buy. Of two threads, for a double click, one does."""
        try:
            if not self._come():
                return
        finally:
            self.has_come.set()
        _buyer.set(self)
        limits = " ".join(f"-c {name}={value}" for name, value in timeouts_ms().items())
        called = f"oversold buyer {self.name}"
        try:
            with own_connection(
                options=limits, application_name=called, connect_timeout=CONNECT_TIMEOUT
            ):
                end = _outcome(Attempt(product=PRODUCT, buyer=self.name, lock=self.lock))
        except Exception:
            logger.exception("buyer %s under %s", self.name, self.lock)
            end = {"outcome": "error", "said": "the shop failed; its log says why"}
        self._publish("done", **end)

    def at_point(self, name: str, facts: Mapping[str, object]) -> None:
        """Publish what this buyer found here, and wait at the stops that are here."""
        if name == "acquire":
            self._publish("moving", waits_for="lock")
        if name == "acquired":  # what it waits for from now on is the database
            self._publish("moving", waits_for="database")
        if name == "after_read":
            amount = facts["amount"]
            assert isinstance(amount, int)
            self.saw = amount
            if amount == 0:
                return  # sold out: there is nothing to pay or to write
        for stop in STOPS.get(name, ()):
            self._wait_at(stop)

    def _come(self) -> bool:
        """Publish that this buyer moves, unless a thread of its name does already; whether it was
        this one. If the reply to that is lost, it is known by its own value."""
        state = json.dumps({"status": "moving", "since": time.time(), "come": uuid.uuid4().hex})
        key = board(self.round_id)

        def claim() -> bool:
            self._client.hsetnx(key, self.name, state)
            return bool(self._client.hget(key, self.name) == state.encode())

        return until_answered(claim)

    def _publish(self, status: str, **facts: Any) -> None:
        """Publish the state of this buyer: moving, stopped or done."""
        state = {"status": status, "since": time.time(), "saw": self.saw, **facts}
        key = board(self.round_id)
        until_answered(partial(self._client.hset, key, self.name, json.dumps(state)))
        until_answered(partial(self._client.expire, key, KEPT))

    def _wait_at(self, stop: str) -> None:
        """Wait there until its permit comes. Raises LeftAlone."""
        self._publish("stopped", at=stop)
        deadline = time.monotonic() + timeout()
        # Shorter than the client's own timeout.
        ask = partial(self._client.blpop, [permits(self.round_id, self.name)], timeout=0.5)
        while time.monotonic() < deadline:
            popped: Any = until_answered(ask)
            if popped is not None and popped[1].decode() == stop:
                self._publish("moving", after=stop)
                return
            if (until_answered(current) or {}).get("round") != self.round_id:
                raise LeftAlone("another round began: rolled back, nothing sold")
        raise LeftAlone(f"left alone for {timeout():.0f} s: rolled back, nothing sold")


_buyer: ContextVar[SteppedBuyer | None] = ContextVar("buyer", default=None)


def at_point(name: str, facts: Mapping[str, object]) -> None:
    """Stop the purchase of this thread if a person steps through it."""
    if (buyer := _buyer.get()) is not None:
        buyer.at_point(name, facts)


def _outcome(attempt: Attempt) -> dict[str, Any]:
    try:
        receipt = check_out(attempt, address=f"page:{attempt.buyer}")
    except LeftAlone as error:
        return {"outcome": "rolled_back", "said": str(error)}
    except ShopError as error:
        return {"outcome": error.outcome, "said": str(error)}
    released = receipt.lock.get("released")
    return {"outcome": "sold", "order": receipt.order_id, "released": released}


def timeouts_ms() -> dict[str, int]:
    """Milliseconds. A person thinks longer than the shop's own timeouts allow."""
    waits = round(timeout() * 1000)
    names = ("idle_in_transaction_session_timeout", "statement_timeout")
    return {"lock_timeout": waits, **dict.fromkeys(names, waits + 5_000)}
