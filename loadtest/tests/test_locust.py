"""Plain Locust, from its own command line, against a running shop."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from loadtest.rush.locust_process import Buyers
from loadtest.stack.stack import ROOT, Stack


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with (
        tempfile.TemporaryFile() as log,
        Stack(nodes=2, workers=2, threads=100, log=log) as running,
    ):
        yield running


def locust(
    stack: Stack, *options: str, token: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHOP_RESTOCK_TOKEN": token or stack.token}
    return subprocess.run(
        [sys.executable, "-m", "locust", "--headless", "--host", stack.nodes[0].url, *options],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_no_lock_oversells_and_exits_with_3(stack: Stack, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    nodes = ("--nodes", stack.nodes[1].url)
    done = locust(stack, "--lock", "none", *nodes, "--result", str(result))

    assert done.returncode == 3, done.stderr
    assert "OVERSOLD [none]: 200 orders for 100 units" in done.stderr
    run = json.loads(result.read_text())
    assert run["in_flight"] == 200
    assert run["arrival_spread_ms"] < 250  # a sanity bound; the figure is measured elsewhere
    assert re.search(r"/buy \[none\] +200 +0\(0\.00%\)", done.stderr)  # no failure to Locust


def test_a_lock_sells_the_stock_and_exits_with_0(stack: Stack) -> None:
    done = locust(stack, "--lock", "token", "--stock", "30", "-u", "60")
    assert done.returncode == 0, done.stderr
    assert "EXACT [token]: 30 orders for 30 units, 0 left on the shelf" in done.stderr
    assert "Traceback" not in done.stderr
    assert "very high" not in done.stderr


def test_an_unknown_lock_is_refused_with_the_names_that_there_are(stack: Stack) -> None:
    done = locust(stack, "--lock", "nonsense")
    assert done.returncode == 2
    assert "invalid choice: 'nonsense'" in done.stderr
    assert "redis" in done.stderr


def test_a_wrong_token_says_what_to_do_and_is_no_verdict(stack: Stack) -> None:
    done = locust(stack, "--lock", "none", "-u", "5", token="wrong")
    assert done.returncode == 6
    assert "SHOP_RESTOCK_TOKEN" in done.stderr


def test_a_shop_that_is_not_there_says_how_to_start_one(stack: Stack) -> None:
    done = locust(stack, "--host", "http://127.0.0.1:9", "-u", "5")
    assert done.returncode == 6
    assert "no shop answers at http://127.0.0.1:9" in done.stderr
    assert "make serve" in done.stderr


def test_the_web_ui_has_every_lock_in_a_drop_down_and_no_token(stack: Stack) -> None:
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        buyers.wait_until_ready()
        with urlopen(buyers.url, timeout=10) as page:
            html = page.read().decode()
    names = json.dumps([one["name"] for one in stack.shop().strategies()])
    assert f'"choices": {names}' in html
    assert stack.token not in html


def test_one_locust_serves_rush_after_rush(stack: Stack) -> None:
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        runs = [rush(buyers, lock=lock) for lock in ("none", "token", "none")]
    assert [run["verdict"] for run in runs] == ["oversold", "exact", "oversold"]
    assert len({run["sale"] for run in runs}) == 3


def rush(buyers: Buyers, *, lock: str) -> dict[str, Any]:
    return buyers.rush(lock=lock, buyers=60, stock=20, hold_ms=0, product="apple", deadline=60)
