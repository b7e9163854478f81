"""The rush that the page starts: Locust runs it, this asks Locust for it.

A browser opens six connections to a host and can make no rush of its own. Locust opens the sale
too, so the restock token stays where it was.
"""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from django.conf import settings

from shop.errors import BadInput, Forbidden, ShopError, Unavailable
from shop.redis import locks_client

#: Buyers started per second; above 100 Locust warns that it will be unreliable.
SPAWN_RATE = 100
#: Seconds for Locust to answer.
TIMEOUT = 3.0
#: Seconds in which Locust may not know yet of the rush that it was asked to start.
BEGINNING = 5.0
#: Seconds for which a Locust that does not answer is taken to be busy with that rush.
BUSY = 30.0
#: Milliseconds between two looks at Locust, whoever asks and however often.
LOOK_EVERY_MS = 500
#: Seconds until a rush that nobody looks at is forgotten.
KEPT = 600
IDLE = {"ready", "stopped"}
#: What Locust said last; who may ask next; what was started from here; who is starting one now.
STATE, LOOKED, STARTED, STARTING = (
    f"page:rush:{name}" for name in ("state", "looked", "started", "starting")
)


class RushIsOn(ShopError):
    """A rush is on. Wait until it is over."""

    status = 409


class DemoOnly(Forbidden):
    """This works in a demo only: start the shop with make serve, or with SHOP_DEMO=1."""


def start(*, lock: str, buyers: int, stock: int, hold_ms: int, product: str) -> None:
    """Begin a rush. Raises RushIsOn, Unavailable (no Locust), BadInput (Locust refuses)."""
    if not settings.LOCUST_URL:
        raise Unavailable("there is no Locust to run it: start the shop with make serve")
    client = locks_client()
    if not client.set(STARTING, 1, nx=True, px=round(TIMEOUT * 2000)):
        raise RushIsOn
    try:
        state = _ask("/runs/state")
        if state["state"] not in IDLE or _begins(_read(client.get(STARTED)), state):
            raise RushIsOn
        rush = {"lock": lock, "buyers": buyers, "stock": stock, "hold_ms": hold_ms}
        form = {"user_count": buyers, "spawn_rate": SPAWN_RATE, "product": product}
        answer = _ask("/swarm", lock=lock, stock=stock, hold_ms=hold_ms, **form)
        if not answer.get("success"):
            raise BadInput(f"Locust did not start the rush: {answer.get('message')}")
        started = {**rush, "after": state["number"], "at": time.time()}
        client.set(STARTED, json.dumps(started), ex=KEPT)
    finally:
        client.delete(STARTING)


def state() -> dict[str, Any]:
    """Whether a rush is on, which one was started from here last, and how many Locust has run.

    Locust is asked at most twice a second: it is busy with the buyers.
    """
    if not settings.LOCUST_URL:
        return {"on": False, "started": None, "number": 0}
    client = locks_client()
    if client.set(LOOKED, 1, nx=True, px=LOOK_EVERY_MS):
        try:
            looked = _ask("/runs/state")
        except Unavailable:
            before = _read(client.get(STATE)) or {"number": 0}
            looked = {"state": "away", "number": before["number"]}
        client.set(STATE, json.dumps(looked), ex=KEPT)
    state, started = (_read(text) for text in client.mget(STATE, STARTED))
    if state is None:
        return {"on": False, "started": started, "number": 0}
    on = state["state"] not in {*IDLE, "away"} or _begins(started, state)
    return {"on": on, "started": started, "number": state["number"]}


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


def _ask(path: str, **form: Any) -> dict[str, Any]:
    """What Locust answers. Raises BadInput where it does not take the form, else Unavailable."""
    data = urlencode(form).encode() if form else None
    bearer = {"Authorization": f"Bearer {settings.LOCUST_TOKEN}"} if settings.LOCUST_TOKEN else {}
    request = Request(settings.LOCUST_URL + path, data, bearer)
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
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
