"""Plain Locust, from its own command line, against a running shop."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from loadtest.rush.locust_process import Buyers
from loadtest.stack.stack import ROOT, Stack, StackError


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


@pytest.mark.parametrize("option", ["--history", "--result"])
def test_a_file_that_cannot_be_written_is_named_and_the_run_ends_without_a_verdict(
    stack: Stack, tmp_path: Path, option: str
) -> None:
    done = locust(stack, "--lock", "token", "-u", "5", option, str(tmp_path))  # a folder
    assert done.returncode == 6, done.stderr
    assert f"{option} cannot be written" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "UNKNOWN [token]" in done.stderr


def test_a_hold_out_of_bounds_is_refused_before_anything_begins(stack: Stack) -> None:
    done = locust(stack, "--hold-ms", "10000000")
    assert done.returncode == 2
    assert "'10000000' is not a whole number from 0 to 5001" in done.stderr


def test_the_web_ui_has_every_lock_in_a_drop_down_and_no_token(stack: Stack) -> None:
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        buyers.wait_until_ready()
        with urlopen(buyers.url, timeout=10) as page:
            html = page.read().decode()
    names = json.dumps([one["name"] for one in stack.shop().strategies()])
    assert f'"choices": {names}' in html
    assert stack.token not in html


def test_the_web_ui_is_opened_under_the_names_that_are_allowed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCUST_ALLOWED_HOSTS", "locust-ui, demo.example")
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        buyers.wait_until_ready()
        for host, status in (("locust-ui:8089", 200), ("demo.example", 200), ("evil.test", 403)):
            connection = HTTPConnection("127.0.0.1", buyers.port, timeout=10)
            connection.request("GET", "/", headers={"Host": host})
            assert connection.getresponse().status == status, host
            connection.close()


def test_one_locust_serves_rush_after_rush(stack: Stack) -> None:
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log) as buyers:
        runs = [rush(buyers, lock=lock) for lock in ("none", "token", "none")]
    assert [run["verdict"] for run in runs] == ["oversold", "exact", "oversold"]
    assert len({run["sale"] for run in runs}) == 3


def test_buyers_that_stayed_run_another_rush_with_other_values(stack: Stack) -> None:
    with tempfile.TemporaryFile() as log, Buyers(stack, log=log, stay=True) as buyers:
        first, second = (rush(buyers, lock=lock) for lock in ("none", "token"))
    assert (first["lock"], first["verdict"]) == ("none", "oversold")
    assert (second["lock"], second["verdict"]) == ("token", "exact")


def test_a_rush_out_of_bounds_is_refused_with_the_reason(stack: Stack) -> None:
    with (
        tempfile.NamedTemporaryFile() as log,
        Buyers(stack, log=log) as buyers,
        pytest.raises(StackError, match="hold_ms: '9999' is not a whole number from 0 to 5001"),
    ):
        buyers.rush(lock="none", buyers=5, stock=2, hold_ms=9999, product="apple", deadline=60)


def rush(buyers: Buyers, *, lock: str) -> dict[str, Any]:
    return buyers.rush(lock=lock, buyers=60, stock=20, hold_ms=0, product="apple", deadline=60)
