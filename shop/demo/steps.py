"""Two buyers and one unit, one step at a time, against the real database.

A round has a lock and the buyers A and B. Each is a thread that runs the real check_out() on a
connection of its own, and stops on the way (shop/demo/stepper.py). There is one round at a time; a
new one sends the buyers of the last one home.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from typing import Any

from django.conf import settings
from django.db import connections

from shop.demo.stepper import (
    LEAVE,
    LeftAlone,
    SteppedBuyer,
    board,
    kept,
    permits,
    step_through,
    timeout,
)
from shop.errors import BadInput, ShopError
from shop.ops.redis import locks_client
from shop.sale import opening
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt

logger = logging.getLogger("shop.demo.steps")

#: Not the rush's apples.
PRODUCT = "last-unit"
BUYERS = ("A", "B")
ROUND = "page:steps"
#: Seconds without an answer after which a buyer that moves counts as blocked.
BLOCKED_AFTER = 0.4
#: Seconds for a buyer who comes to be seen, before the first press of its button is answered.
HAS_COME = 3.0
#: Seconds for a buyer to connect to PostgreSQL: nobody else waits for it, and on a machine that is
#: busy the shop's own few would end the round.
CONNECT_TIMEOUT = 30


def timeouts_ms() -> dict[str, int]:
    """Milliseconds. A person thinks longer than the shop's own timeouts allow."""
    waits = round(timeout() * 1000)
    return {
        "idle_in_transaction_session_timeout": waits + 5_000,
        "lock_timeout": waits,
        "statement_timeout": waits + 5_000,
    }


class NotNow(ShopError):
    text = "This buyer cannot take a step now. Wait until it has stopped, or begin a new round."
    status = 409


def begin(lock: str) -> str:
    """A new round with one unit on the shelf; its id. Those who are still inside roll back."""
    client = locks_client()
    before = current(client)
    if before is not None:
        for buyer in BUYERS:
            _permit(before["round"], buyer, LEAVE)
    opening.restock(product=PRODUCT, amount=1, lock=lock)
    round_id = uuid.uuid4().hex
    client.set(ROUND, json.dumps({"round": round_id, "lock": lock}), ex=kept())
    return round_id


def step(round_id: str, buyer: str) -> None:
    """Let a buyer take its next step. Raises NotNow, or BadInput."""
    if buyer not in BUYERS:
        raise BadInput("unknown buyer", allowed=BUYERS)
    client = locks_client()
    now = current(client)
    if now is None or now["round"] != round_id:
        raise NotNow("this round is over; begin a new one")
    client.expire(ROUND, kept())
    at = _parsed(client.hget(board(round_id), buyer))
    if at is None:
        stepped, has_come = SteppedBuyer(round_id, buyer, client), threading.Event()
        threading.Thread(target=_buy, args=(stepped, now["lock"], has_come), daemon=True).start()
        has_come.wait(HAS_COME)
        return
    if at["status"] != "stopped":
        raise NotNow
    _permit(round_id, buyer, at["at"])


def current(client: Any) -> dict[str, Any] | None:
    """Round and lock of the round that is on."""
    return _parsed(client.get(ROUND))


def state() -> dict[str, Any] | None:
    """The round that is on and how far its buyers are; None where there is none.

    A buyer is `ready`, `moving`, `blocked`, `stopped` (`at` a stop) or `done` (`outcome`).
    Blocked, it `waits_for` the lock or the database. `left_s`: seconds until it gives up.
    """
    client = locks_client()
    now = current(client)
    if now is None:
        return None
    states = dict(zip(BUYERS, client.hmget(board(now["round"]), BUYERS), strict=True))
    return {**now, "buyers": {buyer: _seen(_parsed(text)) for buyer, text in states.items()}}


def _seen(state: dict[str, Any] | None) -> dict[str, Any]:
    if state is None:
        return {"status": "ready"}
    if state["status"] == "stopped":
        return {**state, "left_s": _left(state, timeout())}
    if state["status"] == "moving" and time.time() - state["since"] > BLOCKED_AFTER:
        waits_for = state.get("waits_for", "database")
        limit = settings.SHOP_LOCK_WAIT if waits_for == "lock" else timeout()
        return {**state, "status": "blocked", "waits_for": waits_for, "left_s": _left(state, limit)}
    return state


def _left(state: dict[str, Any], limit: float) -> float:
    """Seconds of `limit` that are left since a buyer has been where it is."""
    return max(0.0, round(float(state["since"]) + limit - time.time(), 1))


def _parsed(text: bytes | str | None) -> dict[str, Any] | None:
    return None if text is None else dict(json.loads(text))


def _permit(round_id: str, buyer: str, permit: str) -> None:
    client = locks_client()
    client.rpush(permits(round_id, buyer), permit)
    client.expire(permits(round_id, buyer), kept())


def _buy(stepped: SteppedBuyer, lock: str, has_come: threading.Event) -> None:
    """One buyer, in a thread of its own. Of two, for a double click, one buys."""
    buyer = stepped.buyer
    try:
        if not stepped.come():
            return
    finally:
        has_come.set()
    step_through(stepped)
    _connect(buyer)
    try:
        end = _outcome(Attempt(product=PRODUCT, buyer=buyer, lock=lock))
    except Exception:
        logger.exception("buyer %s under %s", buyer, lock)
        end = {"outcome": "error", "said": "the shop failed; its log says why"}
    finally:
        connections["default"].close()
    stepped.publish("done", **end)


def _outcome(attempt: Attempt) -> dict[str, Any]:
    try:
        receipt = check_out(attempt, address=f"page:{attempt.buyer}")
    except LeftAlone as error:
        return {"outcome": "rolled_back", "said": str(error)}
    except ShopError as error:
        return {"outcome": error.outcome, "said": str(error)}
    return {
        "outcome": "sold",
        "order": receipt.order_id,
        "released": receipt.lock.get("released"),
    }


def _connect(buyer: str) -> None:
    """Give this thread a connection outside the pool, with timeouts long enough for a person. It is
    closed at the end, so nothing of it has to be put back."""
    alone = connections["default"].copy()
    options = alone.settings_dict["OPTIONS"]
    options.pop("pool", None)
    options["options"] = " ".join(f"-c {name}={value}" for name, value in timeouts_ms().items())
    options["application_name"] = f"oversold buyer {buyer}"
    options["connect_timeout"] = CONNECT_TIMEOUT
    connections["default"] = alone
