"""The history that the demo's hooks record. loadtest/tests/test_faults.py tests their stops."""

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
from shop.tests.loop import Loop, in_a_loop
from shop.tests.purchases import committed, open_sale


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Iterator[Path]:
    """Return a folder into which the shop records its purchases."""
    (tmp_path / "at").mkdir()
    (tmp_path / "go").mkdir()
    settings.SHOP_DEMO_HISTORY = str(tmp_path)
    settings.SHOP_DEMO_NODE = "A"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "demo.hooks.TraceMiddleware"]
    hooks.install()
    yield tmp_path
    points.install(None)


def events(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("node-A-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def buy(lock: str, **headers: str) -> Any:
    return Client().post("/buy", {"buyer": "ann", "lock": lock}, headers=headers)


@committed
def test_purchase_under_a_lock_is_recorded(folder: Path) -> None:
    open_sale(2)
    answer = buy("redis", **{"Idempotency-Key": "run/ann"}).json()
    seen = events(folder)
    assert [e["f"] for e in seen] == [
        *("arrives", "begins", "acquire", "acquired", "after_read"),
        *("before_commit", "after_commit", "release", "released"),
    ]
    begun = {e["f"] for e in seen if e["type"] == "invoke"}
    assert begun == {"begins", "acquire", "before_commit", "release"}
    assert {e["attempt"] for e in seen} == {"run/ann"}
    of = {e["f"]: e for e in seen}
    assert (of["begins"]["lock"], of["begins"]["product"]) == ("redis", "apple")
    assert of["acquired"]["fence"] == answer["lock"]["fence"]
    assert of["acquired"]["lock_name"] == "redis:apple"
    assert of["acquired"]["thread"] == threading.get_ident()
    assert of["after_read"]["amount"] == 2
    assert of["before_commit"]["order"] == answer["order"]
    assert of["acquired"]["token"] == of["release"]["token"] == of["released"]["token"]
    assert of["released"]["outcome"] == "released"
    assert {e["sale"] for e in seen[4:]} == {answer["sale"]}
    assert [e["t"] for e in seen] == sorted(e["t"] for e in seen)


@committed
def test_purchase_without_a_key_is_neither_recorded_nor_stopped(folder: Path) -> None:
    open_sale(1)
    assert buy("redis", **{"Demo-Stop": "after_read"}).status_code == 201
    assert not list(folder.glob("*.jsonl"))


@committed
@pytest.mark.parametrize(("lock", "alike"), [("reentrant", True), ("redis", False)])
def test_async_purchase_is_recorded_by_thread_or_task(lock: str, alike: bool, folder: Path) -> None:
    """Redisson's token names the thread, so two buyers in turn in one thread share it.

    If their tasks were recorded, they would look like two holders of one token.
    """
    open_sale(5)

    async def both(loop: Loop) -> None:
        tasks = []  # both are kept: the number of a task is its place in memory
        for key in ("first", "second"):
            tasks.append(asyncio.create_task(loop.buy(key=key, lock=lock)))
            assert (await tasks[-1]).status == 201

    in_a_loop(both, whole=1)
    seen = events(folder)
    for key in ("first", "second"):
        of_it = [event for event in seen if event["attempt"] == key and event["f"] != "arrives"]
        assert len({event["thread"] for event in of_it}) == 1, "one purchase has one handler"
    first, second = [event for event in seen if event["f"] == "acquired"]
    assert (first["token"] == second["token"]) is alike, (
        "one thread for both, or this shows nothing"
    )
    assert (first["thread"] == second["thread"]) is alike
    if alike:
        assert first["thread"] == int(first["token"].rpartition(":")[2])


def test_clock_is_wrong_only_in_a_demo(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SHOP_DEMO_CLOCK_AHEAD = 3600.0
    monkeypatch.setattr("time.time", lambda: 1000.0)
    settings.SHOP_DEMO = False
    assert wall_clock() == 1000.0
    settings.SHOP_DEMO = True
    assert wall_clock() == 4600.0
