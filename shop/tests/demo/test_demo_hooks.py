"""A demo's hooks: a purchase is recorded; a real shop has none. That it stops where it was asked to
is in loadtest/tests/test_faults.py."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from shop.demo import hooks as demo
from shop.sale import points
from shop.sale.polling import wall_clock
from shop.tests.loop import Loop, in_a_loop
from shop.tests.till import committed, open_sale


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Iterator[Path]:
    """A shop that records into this folder."""
    (tmp_path / "at").mkdir()
    (tmp_path / "go").mkdir()
    settings.SHOP_DEMO_HISTORY = str(tmp_path)
    settings.SHOP_DEMO_NODE = "A"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "shop.demo.hooks.TraceMiddleware"]
    demo.install()
    yield tmp_path
    points.install(None)


def events(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("node-A-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def buy(lock: str, **headers: str) -> Any:
    return Client().post("/buy", {"buyer": "ann", "lock": lock}, headers=headers)


@committed
def test_a_purchase_under_a_lock_is_recorded_step_by_step(folder: Path) -> None:
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
def test_without_a_key_nothing_is_recorded_and_nobody_stops(folder: Path) -> None:
    open_sale(1)
    assert buy("redis", **{"Demo-Stop": "after_read"}).status_code == 201
    assert not list(folder.glob("*.jsonl"))


@committed
@pytest.mark.parametrize(("lock", "alike"), [("reentrant", True), ("redis", False)])
def test_a_purchase_in_an_event_loop_is_recorded_as_its_threads_if_it_runs_in_one_else_as_its_tasks(
    lock: str, alike: bool, folder: Path
) -> None:
    """Redisson's token names the thread: two buyers in turn in one thread share it rightly, and
    their tasks would look like two holders of one token."""
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


def test_outside_a_demo_there_are_no_hooks_and_the_clock_is_right(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SHOP_DEMO = False
    settings.SHOP_DEMO_HISTORY = str(tmp_path)
    settings.SHOP_DEMO_PAUSES = {"released": "10"}
    settings.SHOP_DEMO_CLOCK_AHEAD = 3600.0
    installed: list[object] = []
    monkeypatch.setattr(points, "install", installed.append)
    demo.install()
    assert installed == []
    monkeypatch.setattr("time.time", lambda: 1000.0)
    assert wall_clock() == 1000.0
    settings.SHOP_DEMO = True
    assert wall_clock() == 4600.0
