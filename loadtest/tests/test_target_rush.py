"""`python -m loadtest target`, which tests a third-party shop.

The target is the class that describes the shop to the load test. Most of these tests use a shop
with a login, a CSRF token and a cart (cart_shop.py), which runs in a mode such as `hiding`.
"""

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from loadtest.commands.target import run
from loadtest.stack.stack import StackError
from loadtest.target import ask
from loadtest.tests.cart_shop import GATHERED_BUYERS
from loadtest.tests.checkout import read_newest_runs
from loadtest.tests.held_target import run_shop
from servers.embedded import VAR
from servers.loopback import find_free_port

#: The beginning of the target's file. A test may continue the body of the class.
TARGET_START = (
    "from loadtest.tests.cart_shop import *\nclass MyShop(CartShop):\n    name = 'my_shop'\n"
)
#: The type of the function that the fixture `run_target` returns.
RunTarget = Callable[..., tuple[int, str]]


@pytest.fixture
def run_target(results: Path, tmp_path: Path) -> RunTarget:
    """Return a function that runs the command `target`, by default with one rush for 8 units."""

    def run_command(host: str, methods: str = "", **options: Any) -> tuple[int, str]:
        """Run the command `target`. Return its exit code and its output.

        host     the address of the shop
        methods  the source of methods to add to the target's class
        options  options of the command
        """
        file = tmp_path / "my_shop.py"
        file.write_text(TARGET_START + methods)
        output = io.StringIO()
        rush_options: Any = {
            "buyers": GATHERED_BUYERS,
            "stock": 8,
            "deadline": 20,
            "repeat": 1,
            **options,
        }
        status = run(Console(file=output, width=120), target=file, host=host, **rush_options)
        return status, output.getvalue()

    return run_command


def test_rush_times_only_the_purchase(results: Path, run_target: RunTarget, tmp_path: Path) -> None:
    """All log-ins and requests for the cart are answered before the first purchase is sent.

    There are three rushes, for 8, 4 and 1 units. In the mode `gathering` the shop answers no
    purchase before all 20 buyers have sent theirs. It forgets the requests when a sale opens, so
    `requests_seen` has those of the third rush.
    """
    with run_shop(tmp_path, "gathering") as host:
        status, output = run_target(host, repeat=3)
        requests_seen = ask(f"{host}/seen")
    assert status == 0, output
    assert re.search(r"^my_shop +✓ EXACT +8 +0 ", output, re.MULTILINE), output
    assert "not judged: repeating a request whose answer was lost" in output
    assert "found in none of 3 rushes: that is no proof" in output

    preparation_count = requests_seen.index("/checkout")
    # Each buyer logs in, puts two products into the cart, and then buys.
    assert sorted(requests_seen[:preparation_count]) == (
        ["/cart"] * 2 * GATHERED_BUYERS + ["/login"] * GATHERED_BUYERS
    )
    assert requests_seen[preparation_count:] == ["/checkout"] * GATHERED_BUYERS

    summary = json.loads((results / "latest" / "summary.json").read_text())
    runs = summary["runs"]
    assert {(run["verdict"], run["lock"]) for run in runs} == {("exact", "my_shop")}
    assert [run["initial_stock"] for run in runs] == [8, 4, 1]
    assert {run["in_flight"] for run in runs} == {GATHERED_BUYERS}
    assert summary["target"]["host"] == host
    assert len(summary["target"]["judged"]) == 3  # the orders, the answers and the stock
    latest = results / "latest"
    names = {path.name for path in latest.iterdir()}
    assert names == {"summary.json", "history.jsonl", "report.html", "target.md", "run.log"}
    assert "8 units; my_shop.py at http://127.0.0.1" in (latest / "report.html").read_text()


def test_shop_that_hides_orders_is_detected(
    results: Path, run_target: RunTarget, tmp_path: Path
) -> None:
    """In the mode `hiding` the shop sells 8 units, but lists only the first three orders.

    The verdict is `undersold`. By default `exact` is expected, so the exit code is 1. With
    expect="undersold" it is 0.
    """
    with run_shop(tmp_path, "hiding") as host:
        status, output = run_target(host)
        assert status == 1, output
        assert "(expected exact)" in output
        assert not read_newest_runs(results)[0]["as_expected"]
        status, output = run_target(host, expect="undersold")
    assert status == 0, output
    assert "(expected" not in output
    [second_run] = read_newest_runs(results)
    assert (second_run["verdict"], second_run["orders"]) == ("undersold", 3)
    assert (second_run["expected"], second_run["as_expected"]) == ("undersold", True)
    assert "was answered with order " in output, "the terminal shows the finding"
    assert {"lost_update", "lost_ack"} <= set(second_run["violations"])


@pytest.mark.parametrize(
    ("mode", "verdict", "message"),
    [
        ("deleting", "unknown", r"order A-\d is gone \(7 more\), 1 s after the rush was judged"),
        ("repeating", "oversold", r"order A-\d-again is new \(7 more\), 1 s after"),
    ],
)
def test_orders_that_change_after_the_verdict_are_found(
    results: Path,
    run_target: RunTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    verdict: str,
    message: str,
) -> None:
    """One second after the verdict the command reads the orders again.

    In that second the shop deletes its orders (mode `deleting`), or writes each of them once more
    (`repeating`). The command should make three rushes, but ends after the first, because it finds
    the change there.
    """
    with run_shop(tmp_path, mode) as host:

        def change_orders(seconds: float) -> None:
            """Replace time.sleep(): let the shop change its orders instead of waiting."""
            ask(f"{host}/change", method="POST")

        monkeypatch.setattr("loadtest.commands.target.time", SimpleNamespace(sleep=change_orders))
        status, output = run_target(host, repeat=3)
    assert status == 1, output
    [run_of_first_rush] = read_newest_runs(results)
    assert run_of_first_rush["verdict"] == verdict
    assert run_of_first_rush["violations"] == ["changed_later"]
    assert re.search(message, output), output
    assert f"found in rush 1: {verdict.upper()}" in output


@pytest.mark.parametrize(
    ("design", "target"),
    [
        ("queued", "DesignTarget"),
        ("confirmed", "ConfirmedTarget"),
        ("units", "DesignTarget"),
        ("numbered", "NumberedTarget"),
        ("limited", "DesignTarget"),
    ],
)
def test_correct_third_party_shop_is_never_found_wrong(
    results: Path, tmp_path: Path, design: str, target: str
) -> None:
    """Each shop is correct, but works in another way: design_shop.py describes the designs.

    `target` is the class for this design, written as docs/your-shop.md explains.
    """
    file = tmp_path / "my_shop.py"
    file.write_text(f"from loadtest.tests.design_shop import *\nclass MyShop({target}): pass\n")
    output = io.StringIO()
    console = Console(file=output, width=120)
    with run_shop(tmp_path, design, module="loadtest.tests.design_shop") as host:
        status = run(console, target=file, host=host, buyers=20, stock=8, deadline=20, repeat=2)
    assert status == 0, output.getvalue()
    assert "found in none of 2 rushes" in output.getvalue()


def test_answers_with_orders_of_an_earlier_rush_are_refused(results: Path, tmp_path: Path) -> None:
    """The shop, of the design `limited`, sells one order to each customer.

    The target uses the same customers in both rushes. In the second rush the shop answers them with
    their orders of the first one, so the command ends with advice to use new customers.
    """
    file = tmp_path / "my_shop.py"
    file.write_text("from loadtest.tests.design_shop import *\nclass MyShop(NameTarget): pass\n")
    console = Console(file=io.StringIO(), width=120)
    rush_options: Any = {"buyers": 20, "stock": 8, "deadline": 20, "repeat": 2}
    with (
        run_shop(tmp_path, "limited", module="loadtest.tests.design_shop") as host,
        pytest.raises(StackError, match=r"before this rush\..* log in with buyer\.key, which is"),
    ):
        run(console, target=file, host=host, **rush_options)


def test_more_units_than_buyers_cannot_oversell(run_target: RunTarget, host: str) -> None:
    """The command makes the rush, and warns that such a rush cannot show an oversell."""
    status, output = run_target(host, buyers=4, stock=100)
    assert status == 0, output
    assert "4 buyers for 100 units cannot oversell: let more buyers come (--buyers)" in output


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (
            "    def buy(self, buyer): return buyer.client.post(self.kept['x'])\n",
            r"my_shop\.py, line 4: buy\(\) raised AttributeError: .*Repair it, and run again",
        ),
        (
            "    def prepare(self, buyer): buyer.client.post('/cart', json={})\n",
            r"prepare\(\): POST http.*/cart was answered 403, application/json: .*forbidden",
        ),
        (
            "    def prepare(self, buyer): buyer.client.post('/cart', json={}).json()['no']\n",
            r"prepare\(\): POST http.*/cart was answered 403, application/json: .*forbidden",
        ),
        (
            "    def prepare(self, buyer):\n"
            "        from loadtest.stack.client import Shop\n"
            "        Shop('http://127.0.0.1:9', token='').sale(1)\n",
            r"no shop answers at http://127\.0\.0\.1:9 ",
        ),
        (
            "    def buy(self, buyer): return buyer.client.get('http://192.0.2.1/')\n",
            r"a request or a redirect leads to 192\.0\.2\.1, but only 127\.0\.0\.1 may get",
        ),
        # A wrong setting of the target ends the rush: when the sale is opened, or later.
        (
            "    def open(self, stock):\n        self.settles_s = '30'\n",
            "the rush failed: TypeError",
        ),
        (
            "    def open(self, stock):\n"
            "        super().open(stock)\n"
            "        self.prepare_s = '30'\n",
            "the rush failed: TypeError",
        ),
    ],
)
def test_wrong_target_gives_advice_and_leaves_no_results(
    results: Path, run_target: RunTarget, host: str, methods: str, message: str
) -> None:
    """Each case adds a wrong method to the target's class."""
    with pytest.raises(StackError, match=message):
        run_target(host, methods)
    assert list(results.iterdir()) == []
    assert not (VAR / f"run-{os.getpid()}.log").exists()


def test_unreachable_shop_is_reported_and_leaves_no_results(
    results: Path, run_target: RunTarget
) -> None:
    """No program listens at the port of the shop."""
    with pytest.raises(StackError, match=r"no shop answers at .* start it, or give another"):
        run_target(f"http://127.0.0.1:{find_free_port()}")
    assert list(results.iterdir()) == []
