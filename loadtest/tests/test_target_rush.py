"""python -m loadtest target, against a shop with a login, a CSRF token and a cart."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadtest.commands import output as commands
from loadtest.commands.target import Chosen, run
from loadtest.stack.stack import ROOT, StackError
from loadtest.target import ask
from servers.embedded import VAR
from servers.loopback import free_port
from servers.process import ServerProcess

#: What a test adds to the target, below its class.
OWN = "from loadtest.tests.cart_shop import *\nclass MyShop(CartShop):\n    name = 'my_shop'\n"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Start a shop of this mode. Returns its address."""
    started = []

    def start(mode: str) -> str:
        port, log = free_port(), (tmp_path / "shop.log").open("wb")
        process = ServerProcess("the shop", log)
        started.append((process, log))
        command = [sys.executable, "-m", "loadtest.tests.cart_shop", str(port), mode]
        process.start(command, folder=ROOT)
        address = f"http://127.0.0.1:{port}"
        process.wait_until(lambda: [ask(f"{address}/stock")], timeout=20, every=0.05)
        return address

    yield start
    for process, log in started:
        process.stop()
        log.close()


def rush(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    own: str = "    pass\n",
    expect: str = "exact",
    repeat: int = 1,
) -> tuple[int, str]:
    """20 buyers for 8 units; `own` stands in the class of the target."""
    results = tmp_path / "results"
    monkeypatch.setattr(commands, "RESULTS", results)
    file = tmp_path / "my_shop.py"
    file.write_text(OWN + own)
    printed = io.StringIO()
    chosen = Chosen(file, host, buyers=20, stock=8, deadline=20, repeat=repeat, expect=expect)
    status = run(chosen, Console(file=printed, width=120), verbose=False)
    return status, printed.getvalue()


def summary(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "results" / "latest" / "summary.json").read_text())


def test_only_the_request_that_buys_is_in_the_rush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Callable[[str], str]
) -> None:
    host = shop("honest")
    status, printed = rush(tmp_path, monkeypatch, host)
    assert status == 0, printed
    assert "my_shop  ✓ EXACT       8           0" in printed
    assert "not judged: asking again after an answer that was lost" in printed

    seen = ask(f"{host}/seen")
    first = seen.index("/checkout")
    assert sorted(seen[:first]) == ["/cart"] * 40 + ["/login"] * 20
    assert seen[first:] == ["/checkout"] * 20

    found = summary(tmp_path)
    (only,) = found["runs"]
    assert (only["verdict"], only["lock"]) == ("exact", "my_shop")
    assert only["in_flight"] > 10, "some of 20 may be answered before the last one has asked"
    assert found["target"]["host"] == host
    assert len(found["target"]["judged"]) == 3
    names = {path.name for path in (tmp_path / "results" / "latest").iterdir()}
    assert names == {"summary.json", "history.jsonl", "report.html", "target.md", "run.log"}
    assert (
        "8 units; my_shop.py at http://127.0.0.1"
        in (tmp_path / "results" / "latest" / "report.html").read_text()
    )


def test_a_shop_in_which_nothing_is_found_is_rushed_again_with_fewer_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Callable[[str], str]
) -> None:
    status, printed = rush(tmp_path, monkeypatch, shop("honest"), repeat=3)
    assert (status, [run["initial_stock"] for run in summary(tmp_path)["runs"]]) == (0, [8, 4, 1])
    assert "found in none of 3 rushes: that is no proof" in printed
    assert Chosen(tmp_path, "").repeat == 10, "one rush is no default: a race shows in some only"


@pytest.mark.parametrize(("expect", "ends_with"), [("exact", 1), ("oversold", 0)])
def test_a_shop_that_answers_sold_without_an_order_is_found_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shop: Callable[[str], str],
    expect: str,
    ends_with: int,
) -> None:
    status, printed = rush(tmp_path, monkeypatch, shop("generous"), expect=expect)
    assert status == ends_with, printed
    assert ("(expected exact)" in printed) == bool(ends_with)
    (only,) = summary(tmp_path)["runs"]
    assert (only["verdict"], only["orders"], only["oversold"]) == ("oversold", 8, 12)
    assert (only["expected"], only["as_expected"]) == (expect, not ends_with)
    assert only["violations"] == ["lost_ack"]


def test_a_shop_that_hides_orders_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Callable[[str], str]
) -> None:
    status, printed = rush(tmp_path, monkeypatch, shop("hiding"))
    assert status == 1, printed
    (only,) = summary(tmp_path)["runs"]
    assert (only["verdict"], only["orders"]) == ("undersold", 3)
    assert "was answered with order " in printed, "the terminal says what was found"
    assert {"lost_update", "lost_ack"} <= set(only["violations"])


@pytest.mark.parametrize(
    ("mode", "own", "says"),
    [
        (
            "honest",
            "    def buy(self, buyer): return buyer.client.post(self.kept['x'])\n",
            r"my_shop\.py, line 4: buy\(\) raised AttributeError: .*Repair it, and run again",
        ),
        ("pages", "    pass\n", r"read\(\) raised JSONDecodeError.*An HTML page is often a login"),
        (
            "honest",
            "    def prepare(self, buyer): buyer.client.post('/cart', json={})\n",
            r"prepare\(\): POST http.*/cart was answered 403, application/json: .*forbidden",
        ),
        (
            "honest",
            "    def prepare(self, buyer): buyer.client.post('/cart', json={}).json()['no']\n",
            r"prepare\(\): POST http.*/cart was answered 403, application/json: .*forbidden",
        ),
        (
            "honest",
            "    def buy(self, buyer): return buyer.client.get('http://192.0.2.1/')\n",
            r"a request or a redirect leads to 192\.0\.2\.1, and only 127\.0\.0\.1 may be asked",
        ),
    ],
)
def test_a_wrong_target_says_what_to_do_and_leaves_no_results(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shop: Callable[[str], str],
    mode: str,
    own: str,
    says: str,
) -> None:
    with pytest.raises(StackError, match=says):
        rush(tmp_path, monkeypatch, shop(mode), own)
    assert list((tmp_path / "results").iterdir()) == []
    assert not (VAR / f"run-{os.getpid()}.log").exists()


def test_a_shop_that_is_down_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StackError, match=r"no shop answers at .* start it, or name another"):
        rush(tmp_path, monkeypatch, f"http://127.0.0.1:{free_port()}")
    assert list((tmp_path / "results").iterdir()) == []
