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
from typing import Any

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
#: Point -> what a buyer waits for from there on.
WAITS_FOR = {"acquire": "lock", "acquired": "database"}
#: The key of the round that is on. Seconds after which Redis forgets one that nobody continues.
ROUND, KEPT = "page:steps", 3_600
#: Seconds before a buyer asks again a Redis that does not answer, and how often it does.
PAUSE, TRIES = 0.5, 40
#: Seconds without an answer after which a buyer that moves counts as blocked.
BLOCKED_AFTER = 0.4
#: Seconds for a buyer to connect to PostgreSQL: nobody else waits for it, and on a machine that is
#: busy the shop's own few would end the round.
CONNECT_TIMEOUT = 30
_buyer: ContextVar[SteppedBuyer | None] = ContextVar("buyer", default=None)


class NotNow(ShopError):
    text = "What is on does not allow this now. Wait until it is over."
    status = 409


class LeftAlone(Exception):
    """The next step did not come in time, or another round began: rolled back, nothing sold."""


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
        return
    if at["status"] != "stopped":
        wait = "Wait until it has stopped, or begin a new round."
        raise NotNow(f"This buyer cannot take a step now. {wait}")
    permit(round_id, buyer, at["at"])


def permit(round_id: str, buyer: str, stop: str) -> None:
    """Let a buyer leave this stop. One for an earlier stop is a double click, and does nothing."""
    client = locks_client()
    key = f"{board(round_id)}:{buyer}"
    client.rpush(key, stop)
    client.expire(key, KEPT)


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
    found = map(_parsed, locks_client().hmget(board(now["round"]), BUYERS))
    seen = [_seen(state) if state else {"status": "ready"} for state in found]
    return {**now, "buyers": dict(zip(BUYERS, seen, strict=True))}


def _seen(state: dict[str, Any]) -> dict[str, Any]:
    if state["status"] == "done":
        return state
    limit = settings.SHOP_DEMO_STEP_TIMEOUT
    if state["status"] == "moving":
        if time.time() - state["since"] <= BLOCKED_AFTER:
            return state
        state = {"waits_for": "database", **state, "status": "blocked"}
        limit = settings.SHOP_LOCK_WAIT if state["waits_for"] == "lock" else limit
    return {**state, "left_s": max(0.0, round(state["since"] + limit - time.time(), 1))}


def _parsed(text: bytes | str | None) -> dict[str, Any] | None:
    return None if text is None else dict(json.loads(text))


def board(round_id: str) -> str:
    """The key of the states of a round's buyers. A buyer's permits are below it."""
    return f"{ROUND}:{round_id}"


def until_answered(command: Callable[[], Any]) -> Any:
    """The reply to a command that may be executed twice. It is sent again for some 20 s: the round
    of a class should not end since Redis was silent for two. Raises redis.RedisError."""
    return Retry(ConstantBackoff(PAUSE), TRIES).call_with_retry(command, lambda error: None)


class SteppedBuyer:
    """One buyer of one round, in a thread of its own."""

    def __init__(self, round_id: str, name: str, lock: str) -> None:
        self.round_id = round_id
        self.name = name
        self.attempt = Attempt(product=PRODUCT, buyer=name, lock=lock)
        self.saw: object = None  # the stock, once it has read it
        self._client = locks_client()
        self._board = board(round_id)

    def comes(self) -> bool:
        """Publish that this buyer moves, unless one of its name does already; whether it was this
        one. If the reply to that is lost, it is known by its own value."""
        state = json.dumps({"status": "moving", "since": time.time(), "come": uuid.uuid4().hex})

        def claim() -> bool:
            self._client.hsetnx(self._board, self.name, state)
            return self._client.hget(self._board, self.name) == state.encode()

        return bool(until_answered(claim))

    def run(self) -> None:
        """Buy, unless one of this name has come already: of two presses one."""
        if not self.comes():
            return
        _buyer.set(self)
        called = f"oversold buyer {self.name}"
        end: dict[str, Any] = {"outcome": "error", "said": "the shop failed; its log says why"}
        try:
            with own_connection(
                options=timeouts(), application_name=called, connect_timeout=CONNECT_TIMEOUT
            ):
                receipt = check_out(self.attempt)
            released = receipt.lock.get("released")
            end = {"outcome": "sold", "order": receipt.order_id, "released": released}
        except LeftAlone as error:
            end = {"outcome": "rolled_back", "said": str(error)}
        except ShopError as error:
            end = {"outcome": error.outcome, "said": str(error)}
        except Exception:
            logger.exception("buyer %s under %s", self.name, self.attempt.lock)
        self.publish("done", **end)

    def publish(self, status: str, **facts: Any) -> None:
        """Publish the state of this buyer: moving, stopped or done."""
        state = {"status": status, "since": time.time(), "saw": self.saw, **facts}
        until_answered(partial(self._client.hset, self._board, self.name, json.dumps(state)))
        until_answered(partial(self._client.expire, self._board, KEPT))

    def wait_at(self, stop: str) -> None:
        """Wait there until its permit comes. Raises LeftAlone."""
        self.publish("stopped", at=stop)
        patience = settings.SHOP_DEMO_STEP_TIMEOUT
        deadline = time.monotonic() + patience
        # Shorter than the client's own timeout.
        ask = partial(self._client.blpop, [f"{self._board}:{self.name}"], timeout=0.5)
        while time.monotonic() < deadline:
            popped = until_answered(ask)
            if popped is not None and popped[1].decode() == stop:
                self.publish("moving", after=stop)
                return
            if (until_answered(current) or {}).get("round") != self.round_id:
                raise LeftAlone("another round began: rolled back, nothing sold")
        raise LeftAlone(f"left alone for {patience:.0f} s: rolled back, nothing sold")


def at_point(name: str, facts: Mapping[str, object]) -> None:
    """If a person steps through the purchase of this thread, publish what its buyer found here, and
    wait at the stops that are here."""
    buyer = _buyer.get()
    if buyer is None:
        return
    if name in WAITS_FOR:
        buyer.publish("moving", waits_for=WAITS_FOR[name])
    if name == "after_read":
        buyer.saw = facts["amount"]
        if buyer.saw == 0:
            return  # sold out: there is nothing to pay or to write
    for stop in STOPS.get(name, ()):
        buyer.wait_at(stop)


def timeouts() -> str:
    """As options of PostgreSQL. A person thinks longer than the shop's own timeouts allow."""
    waits = round(settings.SHOP_DEMO_STEP_TIMEOUT * 1000)
    ends = waits + 5_000
    idle = f"-c idle_in_transaction_session_timeout={ends}"
    return f"-c lock_timeout={waits} -c statement_timeout={ends} {idle}"
