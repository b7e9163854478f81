"""The rush that the page starts and stops: Locust runs it, this asks Locust for it.

A browser opens six connections to a host and can make no rush of its own. Locust opens the sale
too, so the restock token stays where it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from django.conf import settings
from django.db import OperationalError

from shop.errors import BadInput, Forbidden, ShopError, Unavailable
from shop.ops.redis import locks_client
from shop.sale import stock as shelf

#: Buyers started per second; above 100 Locust warns that it will be unreliable.
SPAWN_RATE = 100
#: Seconds after its release until the buyers of a rush give up.
DEADLINE = 60
#: Seconds for Locust to answer.
TIMEOUT = 3.0
#: Seconds for Locust to begin a rush: it waits until the last one has been stopped, which alone may
#: take 2.5 s, and asks the shop for its locks. One that it begins must not be said to have failed.
START_TIMEOUT = 10.0
#: Seconds for Locust to stop all buyers.
STOP_TIMEOUT = 15.0
#: Seconds in which Locust may not know yet of the rush that it was asked to start.
BEGINNING = 5.0
#: Seconds for which a Locust that does not answer is taken to be busy with that rush.
BUSY = 30.0
#: Milliseconds between two requests to Locust, however many pages ask.
LOOK_EVERY_MS = 500
#: Seconds until a rush that nobody looks at is forgotten.
KEPT = 600
IDLE = {"ready", "stopped"}
#: What Locust said last; who may ask next; what was started from here; who is starting one now.
STATE, LOOKED, STARTED, STARTING = (
    f"page:rush:{name}" for name in ("state", "looked", "started", "starting")
)


class RushIsOn(ShopError):
    text = "A rush is on. Wait until it is over."
    status = 409


class NoRush(ShopError):
    text = "No rush is on: there is nothing to stop."
    status = 409


class DemoOnly(Forbidden):
    text = "This works in a demo only: start the shop with make serve, or with SHOP_DEMO=1."


def start(*, lock: str, buyers: int, stock: int, hold_ms: int, product: str) -> None:
    """Begin a rush. Raises RushIsOn, Unavailable (no Locust), BadInput (Locust refuses)."""
    if not settings.LOCUST_URL:
        raise Unavailable("there is no Locust to run it: start the shop with make serve")
    client = locks_client()
    if not client.set(STARTING, 1, nx=True, px=round((TIMEOUT + START_TIMEOUT) * 1000)):
        raise RushIsOn
    try:
        state = _ask("/runs/state")
        if state["state"] not in IDLE or _begins(_read(client.get(STARTED)), state):
            raise RushIsOn
        rush = {"lock": lock, "buyers": buyers, "stock": stock, "hold_ms": hold_ms}
        form = {"user_count": buyers, "spawn_rate": SPAWN_RATE, "product": product}
        wanted = {"lock": lock, "stock": stock, "hold_ms": hold_ms, "deadline": DEADLINE}
        answer = _ask("/swarm", {**form, **wanted}, timeout=START_TIMEOUT)
        if not answer.get("success"):
            raise BadInput(f"Locust did not start the rush: {answer.get('message')}")
        started = {**rush, "after": state["number"], "at": time.time()}
        client.set(STARTED, json.dumps(started), ex=KEPT)
    finally:
        client.delete(STARTING)


def stop(*, product: str) -> None:
    """End the rush that is on, and its sale: what is still under way sells nothing any more.

    Raises NoRush, or Unavailable where Locust or the database does not answer in time.
    """
    if not settings.LOCUST_URL or _ask("/runs/state")["state"] in IDLE:
        raise NoRush
    try:
        shelf.close(product=product)
    except OperationalError as error:
        text = "the buyers are stopped; the sale could not be closed: purchases hold its row"
        raise Unavailable(f"{text}. The next rush closes it.") from error
    finally:
        _ask("/stop", {}, timeout=STOP_TIMEOUT)


def state() -> dict[str, Any]:
    """What Locust does, asked at most twice a second: it is busy with the buyers.

    on       whether a rush is on
    started  the rush that was started from here last, None if none was
    number   how many rushes Locust has run
    rush     the present one: sale, lock, buyers, arrived, answered, left_s; None if none is on
    last     what the last one came to: sale, lock, verdict, stopped; None before the first
    """
    nothing: dict[str, Any] = {"on": False, "started": None, "number": 0, "rush": None}
    if not settings.LOCUST_URL:
        return {**nothing, "last": None}
    client = locks_client()
    if client.set(LOOKED, 1, nx=True, px=LOOK_EVERY_MS):
        try:
            looked = {"rush": None, "last": None, **_ask("/runs/state"), "at": time.time()}
        except Unavailable:
            looked = {**(_read(client.get(STATE)) or {**nothing, "last": None}), "state": "away"}
        client.set(STATE, json.dumps(looked), ex=KEPT)
    state, started = (_read(text) for text in client.mget(STATE, STARTED))
    if state is None:
        return {**nothing, "started": started, "last": None}
    on = state["state"] not in {*IDLE, "away"} or _begins(started, state)
    return {
        "on": on,
        "started": started,
        "number": state["number"],
        "rush": _by_now(state) if on else None,
        "last": state["last"],
    }


def _by_now(state: dict[str, Any]) -> dict[str, Any] | None:
    """The present rush, its countdown reduced by the time since Locust was asked."""
    rush: dict[str, Any] | None = state["rush"]
    if rush is None or rush["left_s"] is None:
        return rush
    return {**rush, "left_s": max(0.0, round(rush["left_s"] - (time.time() - state["at"]), 1))}


def runs() -> dict[int, dict[str, Any]]:
    """Sale -> what Locust says of its rush, as in `summary.json`; empty where Locust is away."""
    if not settings.LOCUST_URL:
        return {}
    try:
        return {run["sale"]: run for run in _ask("/runs")["runs"] if "sale" in run}
    except Unavailable:
        return {}


def _begins(started: dict[str, Any] | None, state: dict[str, Any]) -> bool:
    """Whether a rush was started that Locust does not know of yet, or is too busy to report."""
    if started is None:
        return False
    longest = BUSY if state["state"] == "away" else BEGINNING
    return bool(state["number"] <= started["after"] and time.time() < started["at"] + longest)


def _read(text: bytes | str | None) -> dict[str, Any] | None:
    return None if text is None else dict(json.loads(text))


def _ask(
    path: str, form: Mapping[str, object] | None = None, *, timeout: float = TIMEOUT
) -> dict[str, Any]:
    """What Locust answers. Raises BadInput where it does not take the form, else Unavailable."""
    data = None if form is None else urlencode(form).encode()
    bearer = {"Authorization": f"Bearer {settings.LOCUST_TOKEN}"} if settings.LOCUST_TOKEN else {}
    request = Request(settings.LOCUST_URL + path, data, bearer)
    try:
        with urlopen(request, timeout=timeout) as answer:
            return dict(json.load(answer))
    except HTTPError as error:
        with error:
            said = _message(error)
        if error.code == 400:
            raise BadInput(f"Locust did not start the rush: {said}") from error
        raise Unavailable(f"Locust at {settings.LOCUST_URL} refuses: {said}") from error
    except (URLError, OSError, ValueError) as error:
        raise Unavailable(f"Locust does not answer at {settings.LOCUST_URL}: {error}") from error


def _message(error: HTTPError) -> str:
    """What Locust says of a refusal."""
    try:
        return str(json.load(error)["message"])
    except (OSError, ValueError, TypeError, KeyError):
        return str(error)
