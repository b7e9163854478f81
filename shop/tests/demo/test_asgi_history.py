"""What a history says of purchases in an event loop: who held the lock, as on a node of threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from shop.demo import hooks
from shop.sale import points
from shop.tests.loop import Loop, in_a_loop
from shop.tests.till import committed, open_sale

pytestmark = committed


@pytest.fixture
def folder(tmp_path: Path, settings: Settings) -> Iterator[Path]:
    """A shop that records into this folder."""
    (tmp_path / "at").mkdir()
    settings.SHOP_DEMO_HISTORY = str(tmp_path)
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "shop.demo.hooks.TraceMiddleware"]
    hooks.install()
    yield tmp_path
    points.install(None)


def buy_one_after_the_other(folder: Path, lock: str) -> list[dict[str, Any]]:
    """Two purchases in two tasks of one loop. Returns what was recorded of their grants."""

    async def both(loop: Loop) -> None:
        tasks = []  # both are kept: the number of a task is its place in memory
        for key in ("first", "second"):
            tasks.append(asyncio.create_task(loop.buy(key=key, lock=lock)))
            assert (await tasks[-1]).status == 201

    in_a_loop(both, whole=1)
    (path,) = folder.glob("*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for key in ("first", "second"):
        of_it = [event for event in events if event["attempt"] == key and event["f"] != "arrives"]
        assert len({event["thread"] for event in of_it}) == 1, "one purchase has one handler"
    return [event for event in events if event["f"] == "acquired"]


def test_one_that_runs_whole_in_a_thread_is_recorded_as_that_threads(folder: Path) -> None:
    """Redisson's token names the thread: two buyers in turn in one thread share it rightly, and
    their tasks would look like two holders of one token."""
    open_sale(5)
    first, second = buy_one_after_the_other(folder, "reentrant")
    assert first["token"] == second["token"], "one thread for both: else this shows nothing"
    assert first["thread"] == second["thread"] == int(first["token"].rpartition(":")[2])


def test_one_that_waits_without_a_thread_is_recorded_as_its_tasks(folder: Path) -> None:
    open_sale(5)
    first, second = buy_one_after_the_other(folder, "redis")
    assert first["token"] != second["token"]
    assert first["thread"] != second["thread"]
