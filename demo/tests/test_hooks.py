"""The history of purchases that the demo's hooks record, and a demo's clock that is ahead.

The hooks act at the injection points of a purchase (shop/sale/points.py). They can also stop a
purchase there, which loadtest/tests/test_faults.py tests.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from demo import hooks
from shop.sale import points
from shop.strategies.shared.polling_lock import wall_clock
from shop.tests.loop import ShopInLoop, run_in_loop
from shop.tests.purchases import committed, open_sale


@pytest.fixture
def history_folder(tmp_path: Path, settings: Any) -> Iterator[Path]:
    """The folder into which the shop records its purchases.

    A purchase that stops creates a file in the subfolder `at`. It continues when a test creates a
    file of the same name in the subfolder `go`.
    """
    (tmp_path / "at").mkdir()
    (tmp_path / "go").mkdir()
    settings.SHOP_DEMO_HISTORY = str(tmp_path)
    settings.SHOP_DEMO_NODE = "A"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "demo.hooks.TraceMiddleware"]
    hooks.install_hooks()
    yield tmp_path
    points.install_probe(None)


def read_events(history_folder: Path) -> list[dict[str, Any]]:
    """Return the events in the only file of the history, oldest first."""
    (path,) = history_folder.glob("node-A-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def buy(lock: str, **headers: str) -> Any:
    """Return the HTTP response to a purchase with this strategy (`lock`) and these headers."""
    return Client().post("/buy", {"buyer": "ann", "lock": lock}, headers=headers)


@committed
def test_purchase_under_a_lock_is_recorded(history_folder: Path) -> None:
    """The history has an event for each injection point, a named place in the purchase's code.

    An event with the type `invoke` begins an operation, which a later event ends.
    """
    open_sale(2)
    receipt = buy("redis", **{"Idempotency-Key": "run/ann"}).json()
    events = read_events(history_folder)
    assert [event["f"] for event in events] == [
        "arrives",
        "begins",
        "acquire",
        "acquired",
        "after_read",
        "before_commit",
        "after_commit",
        "release",
        "released",
    ]
    assert {event["f"] for event in events if event["type"] == "invoke"} == {
        "begins",
        "acquire",
        "before_commit",
        "release",
    }
    assert {event["attempt"] for event in events} == {"run/ann"}
    event_by_name = {event["f"]: event for event in events}
    assert event_by_name["begins"]["lock"] == "redis"
    assert event_by_name["begins"]["product"] == "apple"
    assert event_by_name["acquired"]["fence"] == receipt["lock"]["fence"]
    assert event_by_name["acquired"]["lock_name"] == "redis:apple"
    assert event_by_name["acquired"]["thread"] == threading.get_ident()
    assert event_by_name["after_read"]["amount"] == 2
    assert event_by_name["before_commit"]["order"] == receipt["order"]
    token = event_by_name["acquired"]["token"]
    assert event_by_name["release"]["token"] == token
    assert event_by_name["released"]["token"] == token
    assert event_by_name["released"]["outcome"] == "released"
    events_since_read = events[4:]  # before the read of the stock, the purchase knows no sale
    assert {event["sale"] for event in events_since_read} == {receipt["sale"]}
    times = [event["t"] for event in events]
    assert times == sorted(times)


@committed
def test_purchase_without_a_key_is_neither_recorded_nor_stopped(history_folder: Path) -> None:
    """A request without an Idempotency-Key is not traced, even if a header requests a stop."""
    open_sale(1)
    assert buy("redis", **{"Demo-Stop": "after_read"}).status_code == 201
    assert not list(history_folder.glob("*.jsonl"))


def test_purchase_does_not_stop_without_the_folder_at(tmp_path: Path, settings: Any) -> None:
    """If the history's folder has no subfolder `at`, no purchase stops.

    The events of a purchase are then written only after its request. A rush records its history
    like this, because nothing must slow it down.
    """
    settings.SHOP_DEMO_HISTORY = str(tmp_path)
    purchase = hooks.TracedPurchase("run/ann", ["after_read"])
    purchase.handle_point("after_read", {})
    assert [event["f"] for event in purchase.unwritten_events] == ["after_read"]


@committed
@pytest.mark.parametrize(("lock", "is_recorded_by_thread"), [("reentrant", True), ("redis", False)])
def test_async_purchase_is_recorded_by_thread_or_task(
    lock: str, is_recorded_by_thread: bool, history_folder: Path
) -> None:
    """The holder of a lock is a thread under `reentrant`, and a task under `redis`.

    Two buyers buy one after the other in the same thread. Under `reentrant` both get that thread's
    token, so the thread must be recorded. Under `redis` each buyer gets a new token.
    """
    open_sale(5)

    async def buy_twice(shop: ShopInLoop) -> None:
        # The list keeps the first task alive. Otherwise the second task could get the same id.
        tasks = []
        for key in ("first", "second"):
            tasks.append(asyncio.create_task(shop.buy(key=key, lock=lock)))
            assert (await tasks[-1]).status == 201

    run_in_loop(buy_twice, thread_count=1)
    events = read_events(history_folder)
    # The event `arrives` is left out, because it is recorded before the event loop passes the
    # purchase on to a thread.
    for key in ("first", "second"):
        thread_or_task_ids = {
            event["thread"]
            for event in events
            if event["attempt"] == key and event["f"] != "arrives"
        }
        assert len(thread_or_task_ids) == 1, "all events of a purchase should have the same id"
    first_event, second_event = [event for event in events if event["f"] == "acquired"]
    has_same_token = first_event["token"] == second_event["token"]
    assert has_same_token is is_recorded_by_thread, (
        "only the token of a thread should be the same in both purchases"
    )
    assert (first_event["thread"] == second_event["thread"]) is is_recorded_by_thread
    if is_recorded_by_thread:  # the token of `reentrant` ends with the id of the thread
        assert first_event["thread"] == int(first_event["token"].rpartition(":")[2])


def test_clock_is_wrong_only_in_a_demo(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SHOP_DEMO_CLOCK_AHEAD has an effect only with SHOP_DEMO."""
    settings.SHOP_DEMO_CLOCK_AHEAD = 3600.0
    monkeypatch.setattr("time.time", lambda: 1000.0)
    settings.SHOP_DEMO = False
    assert wall_clock() == 1000.0
    settings.SHOP_DEMO = True
    assert wall_clock() == 4600.0
