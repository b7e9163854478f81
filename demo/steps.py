"""A demonstration on the page: two buyers of one unit, each moved one step at a time by a button.

A demonstration is called a round. It has a strategy and the buyers A and B. Each buyer is a thread
that runs the real check_out() on its own connection to the real database. Its purchase has two
stops: after the read, and before the commit. There the thread waits for a permit, which the buyer's
button on the page sends. There is one round at a time; a new round makes the buyers of the previous
round roll back.

Permits and the states of the buyers are kept in Redis, because the request for the next step may
reach another worker or node than that of the buyer's thread. The database would need a second
connection, whose statements would mix with the statements that the page shows. Files are not shared
between containers. Keys in Redis also expire by themselves.
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
from django.db import connection
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from shop.errors import BadInput, ShopError
from shop.ops.connections import use_own_connection
from shop.ops.redis import locks_client
from shop.sale import opening
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt

logger = logging.getLogger("demo.steps")

#: The product that the two buyers of a round buy. The page's rushes sell another product.
PRODUCT = "last-unit"
BUYERS = ("A", "B")
#: Point (a place in the code of a purchase, shop/sale/points.py) -> name of the stop there. The
#: stops divide a purchase into the three moves of lesson 1 of the workshop: read, write, commit.
STOPS = {"after_read": "checked", "before_commit": "written"}
#: Point of a purchase -> what a buyer waits for, if it is blocked after that point.
WAITS_FOR = {"acquire": "lock", "acquired": "database"}
#: The key of the current round in Redis.
ROUND_KEY = "page:steps"
#: Time after the last step of a round until Redis deletes the round.
ROUND_TTL_SECONDS = 3_600
#: Time between two tries of a command that Redis does not answer.
RETRY_PAUSE_SECONDS = 0.5
MAX_RETRIES = 40
#: Time without a new state after which a moving buyer counts as blocked.
BLOCKED_AFTER_SECONDS = 0.4
#: Longer than the shop's own connect timeout, which would end a round on a busy machine.
CONNECT_TIMEOUT_SECONDS = 30
_buyer: ContextVar[SteppedBuyer | None] = ContextVar("buyer", default=None)


class NotNow(ShopError):
    text = "Not possible while a rush or a round is running. Wait for it to finish."
    status = 409


class StepAborted(Exception):
    """The button was not pressed in time, or another round began: the purchase rolls back."""


def begin_round(lock: str) -> str:
    """Begin a new round, with two buyers of one unit under a strategy. Return the id of the round.

    The buyers of the previous round roll back.

    lock  the name of the strategy
    """
    client = locks_client()
    # Without this key the buyers of the previous round roll back. They may have locked the
    # product's row, which restock() locks, too.
    client.delete(ROUND_KEY)
    opening.restock(product=PRODUCT, amount=1, lock=lock)
    round_id = uuid.uuid4().hex
    client.set(ROUND_KEY, json.dumps({"round": round_id, "lock": lock}), ex=ROUND_TTL_SECONDS)
    return round_id


def advance_buyer(round_id: str, buyer: str) -> None:
    """Let a buyer of a round begin its purchase or, if it is at a stop, continue from there.

    Raises BadInput for an unknown buyer. Raises NotNow if another round has begun, or if the buyer
    is moving or done.
    """
    if buyer not in BUYERS:
        raise BadInput("unknown buyer", allowed=BUYERS)
    client = locks_client()
    current_round = read_round()
    if current_round is None or current_round["round"] != round_id:
        raise NotNow("this round is over; begin a new one")
    client.expire(ROUND_KEY, ROUND_TTL_SECONDS)
    buyer_state = _parse_json(client.hget(states_key(round_id), buyer))
    if buyer_state is None:
        stepped_buyer = SteppedBuyer(round_id, buyer, current_round["lock"])
        threading.Thread(target=stepped_buyer.run, daemon=True).start()
        return
    if buyer_state["status"] != "stopped":
        advice = "Wait until it has stopped, or begin a new round."
        raise NotNow(f"This buyer cannot take a step now. {advice}")
    send_permit(round_id, buyer, buyer_state["at"])


def send_permit(round_id: str, buyer: str, stop: str) -> None:
    """Allow a buyer to continue its purchase from a stop, at which its thread waits for a permit.

    A second permit for the same stop, as from a double click, has no effect: at its next stop the
    buyer discards the permits for other stops.

    stop  `checked` or `written`, one of the values of STOPS
    """
    client = locks_client()
    key = permits_key(round_id, buyer)
    client.rpush(key, stop)
    client.expire(key, ROUND_TTL_SECONDS)


def read_round() -> dict[str, Any] | None:
    """Return the current round of two buyers, or None if there is no round.

    The field `round` is the id of the round, and `lock` the name of its strategy.
    """
    return _parse_json(locks_client().get(ROUND_KEY))


def read_round_state() -> dict[str, Any] | None:
    """Return the current round and the states of its two buyers. None if there is no round.

    The state of a buyer is a dict. Its `status` is one of these words, and depending on it there
    are further fields:

    ready    the buyer has not begun
    moving   its purchase runs
    blocked  its purchase waits: `waits_for` is `lock` or `database`
    stopped  its purchase waits for the button; `at` is the stop, one of the values of STOPS
    done     its purchase has ended, with `outcome`

    A blocked or stopped buyer gives up in `left_s` seconds. `saw` is the stock that a buyer has
    read.
    """
    current_round = read_round()
    if current_round is None:
        return None
    texts = locks_client().hmget(states_key(current_round["round"]), BUYERS)
    buyers = {
        name: _make_shown_state(_parse_json(text)) for name, text in zip(BUYERS, texts, strict=True)
    }
    return {**current_round, "buyers": buyers}


def _make_shown_state(state: dict[str, Any] | None) -> dict[str, Any]:
    """Return a buyer's state as the page shows it; read_round_state() describes its fields.

    A buyer that has been `moving` for longer than BLOCKED_AFTER_SECONDS is shown as `blocked`.

    state  the state that the buyer has published; None if the buyer has not begun
    """
    if state is None:
        return {"status": "ready"}
    if state["status"] == "done":
        return state
    limit_seconds = settings.SHOP_DEMO_STEP_TIMEOUT
    if state["status"] == "moving":
        if time.time() - state["since"] <= BLOCKED_AFTER_SECONDS:
            return state
        # A published state without `waits_for` means that the buyer waits for the database.
        state = {"waits_for": "database", **state, "status": "blocked"}
        if state["waits_for"] == "lock":
            limit_seconds = settings.SHOP_LOCK_WAIT
    seconds_left = state["since"] + limit_seconds - time.time()
    return {**state, "left_s": max(0.0, round(seconds_left, 1))}


def _parse_json(text: bytes | str | None) -> dict[str, Any] | None:
    """Return the JSON object in a text from Redis. None if `text` is None: the key is missing."""
    if text is None:
        return None
    return dict(json.loads(text))


def states_key(round_id: str) -> str:
    """Return the key in Redis of a round's hash, which maps each buyer's name to its state."""
    return f"{ROUND_KEY}:{round_id}"


def permits_key(round_id: str, buyer: str) -> str:
    """Return the key in Redis of a buyer's permits: a list of the stops that it may leave."""
    return f"{states_key(round_id)}:{buyer}"


def call_with_retry(command: Callable[[], Any]) -> Any:
    """Call `command` until Redis replies, and return the reply.

    The attempts last about 20 s, so a round survives a short outage of Redis. If only the reply was
    lost, Redis executes the command twice. Raises redis.RedisError if no attempt succeeds.
    """
    retry = Retry(ConstantBackoff(RETRY_PAUSE_SECONDS), MAX_RETRIES)
    return retry.call_with_retry(command, lambda error: None)


class SteppedBuyer:
    """One of the two buyers of a round, in its own thread. Each press of a button is one step."""

    def __init__(self, round_id: str, name: str, lock: str) -> None:
        self.round_id = round_id
        self.name = name
        self.attempt = Attempt(product=PRODUCT, buyer=name, lock=lock)
        self.stock_read: object = None  # the stock that this buyer has read; None before the read
        self._client = locks_client()
        self._states_key = states_key(round_id)

    def claim_name(self) -> bool:
        """Publish the first state under this buyer's name, unless another thread has done so.

        Return whether this thread published it. The reply of HSETNX does not show that: if its
        first reply is lost, the repeated command finds the state that this thread has published.
        Therefore the state has a unique id, and is read back.
        """
        state = json.dumps({"status": "moving", "since": time.time(), "id": uuid.uuid4().hex})

        def claim() -> bool:
            self._client.hsetnx(self._states_key, self.name, state)
            return self._client.hget(self._states_key, self.name) == state.encode()

        return bool(call_with_retry(claim))

    def run(self) -> None:
        """Buy one unit, and publish the outcome.

        Do nothing if another thread already buys for this buyer, as after a double click.
        """
        if not self.claim_name():
            return
        _buyer.set(self)
        outcome_fields: dict[str, Any] = {
            "outcome": "error",
            "said": "the shop failed; its log says why",
        }
        try:
            with use_own_connection(**make_connection_options(self.name)):
                receipt = check_out(self.attempt)
            released = receipt.lease.released if receipt.lease else None
            outcome_fields = {"outcome": "sold", "order": receipt.order_id, "released": released}
        except StepAborted as error:
            outcome_fields = {"outcome": "rolled_back", "said": str(error)}
        except ShopError as error:
            outcome_fields = {"outcome": error.outcome, "said": str(error)}
        except Exception:
            logger.exception("buyer %s under %s", self.name, self.attempt.lock)
        self.publish("done", **outcome_fields)

    def publish(self, status: str, **fields: Any) -> None:
        """Publish the state of this buyer for the page.

        status  `moving`, `stopped` or `done`; read_round_state() describes them
        fields  further fields of the state
        """
        state = {"status": status, "since": time.time(), "saw": self.stock_read, **fields}
        call_with_retry(partial(self._client.hset, self._states_key, self.name, json.dumps(state)))
        call_with_retry(partial(self._client.expire, self._states_key, ROUND_TTL_SECONDS))

    def wait_at(self, stop: str) -> None:
        """Wait at this stop of the purchase for the permit that the buyer's button sends.

        Raises StepAborted if no permit arrives in time, or if another round begins.
        """
        self.publish("stopped", at=stop)
        timeout_seconds = settings.SHOP_DEMO_STEP_TIMEOUT
        deadline = time.monotonic() + timeout_seconds
        key = permits_key(self.round_id, self.name)
        # The timeout is shorter than the client's, so that an empty BLPOP is not an error.
        pop_permit = partial(self._client.blpop, [key], timeout=0.5)
        while time.monotonic() < deadline:
            key_and_permit = call_with_retry(pop_permit)
            if key_and_permit is not None and key_and_permit[1].decode() == stop:
                self.publish("moving", after=stop)
                return
            current_round = call_with_retry(read_round)
            if current_round is None or current_round["round"] != self.round_id:
                raise StepAborted("another round has begun: rolled back, nothing was sold")
        raise StepAborted(f"no step for {timeout_seconds:.0f} s: rolled back, nothing was sold")


def handle_point(name: str, fields: Mapping[str, object]) -> None:
    """Publish the progress of a purchase of a round, and wait if its point is in STOPS.

    Each purchase of the shop calls this at its points, which are named places in the code. Only a
    purchase of a round (SteppedBuyer) is stopped; any other continues at once.

    name    the name of the point
    fields  what the purchase reports there; `amount` is the stock that was read
    """
    buyer = _buyer.get()
    if buyer is None:
        return
    if name in WAITS_FOR:
        buyer.publish("moving", waits_for=WAITS_FOR[name])
    if name == "after_read":
        buyer.stock_read = fields["amount"]
        if buyer.stock_read == 0:
            return  # the purchase ends as sold out, so it does not stop
    if name in STOPS:
        buyer.wait_at(STOPS[name])


def make_connection_options(buyer: str) -> dict[str, Any]:
    """Return the options of a buyer's connection to PostgreSQL; other databases need none.

    The timeouts are longer than the shop's own, because a person needs time to think.
    """
    if connection.vendor != "postgresql":
        return {}
    lock_timeout_ms = round(settings.SHOP_DEMO_STEP_TIMEOUT * 1000)
    statement_timeout_ms = lock_timeout_ms + 5_000  # longer, so that lock_timeout ends a wait first
    timeouts = (
        f"-c lock_timeout={lock_timeout_ms} -c statement_timeout={statement_timeout_ms} "
        f"-c idle_in_transaction_session_timeout={statement_timeout_ms}"
    )
    return {
        "options": timeouts,
        "application_name": f"oversold buyer {buyer}",
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    }
