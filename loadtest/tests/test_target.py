"""A shop that is not ours: what is judged of it, and what is said of a wrong target."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loadtest.rush.reading import read
from loadtest.target import Order, Target, TargetError, ask, sql
from loadtest.target.answer import NONE
from loadtest.target.errors import call
from loadtest.target.hosts import is_loopback, require_permission
from loadtest.target.loading import load
from loadtest.tests.lying_target import Shown, listed, rushed

# --- what is judged ------------------------------------------------------------------------------


def test_a_shop_that_sells_its_stock_is_exact() -> None:
    run = rushed(Shown(listed(0, 1, 2, 3), 0), "ssssoo")
    assert (run["verdict"], run["violations"], run["stock_left"]) == ("exact", [], 0)
    assert run["lock"] == "shown"


def test_a_shop_that_takes_more_orders_than_it_has_units_oversells() -> None:
    run = rushed(Shown(listed(0, 1, 2, 3, 4, 5), 3), "ssssss")
    assert (run["verdict"], run["oversold"], run["lost_updates"]) == ("oversold", 2, 5)


def test_orders_of_before_are_not_counted() -> None:
    before = [Order("old-1", "buyer-0"), Order("old-2", "somebody")]
    run = rushed(Shown([*before, *listed(0, 1, 2, 3)], 0, showed=before), "ssssoo")
    assert (run["verdict"], run["orders"]) == ("exact", 4)
    run = rushed(Shown(11, 0, showed=7), "ssssoo")
    assert (run["verdict"], run["orders"]) == ("exact", 4)


@pytest.mark.parametrize("named", [True, False])
def test_an_answer_sold_without_an_order_is_found(named: bool) -> None:
    """Four orders for four units: only the answers show that six were promised one."""
    run = rushed(Shown(listed(0, 1, 2, 3), 0), "ssssss", order=named)
    assert (run["verdict"], run["oversold"]) == ("oversold", 2)
    assert run["violations"] == ["lost_ack"]


def test_an_answer_sold_without_an_order_is_found_in_the_numbers_alone() -> None:
    run = rushed(Shown(4, 0), "ssssss")
    assert (run["verdict"], run["oversold"], run["violations"]) == ("oversold", 2, ["lost_ack"])


@pytest.mark.parametrize("shows", [listed(0, 1, 2), 3])
def test_a_shop_that_hides_an_order_is_not_exact(shows: Any) -> None:
    run = rushed(Shown(shows, 0), "ssssoo")
    assert run["verdict"] == "undersold"
    assert run["violations"] == ["lost_update", "lost_ack", *(["false_sold_out"])]


def test_a_shop_that_hides_the_orders_of_those_it_refused_is_found_by_its_stock() -> None:
    """Three orders are shown, and four units are gone."""
    run = rushed(Shown(listed(0, 1, 2), 0), "sssooo")
    assert run["verdict"] != "exact"
    assert "lost_update" in run["violations"]


def test_an_order_of_somebody_who_was_answered_sold_out_is_found() -> None:
    run = rushed(Shown(listed(0, 1, 2, 5), 0), "ssseoo")
    assert run["verdict"] == "unknown"
    assert "false_sold_out" in run["violations"]
    run = rushed(Shown(listed(0, 1, 2, 5), 0), "sssooo")
    assert run["violations"] == ["false_sold_out"]
    assert run["verdict"] == "unknown"


def test_more_orders_than_buyers_who_can_have_one_are_found_in_the_numbers_alone() -> None:
    run = rushed(Shown(4, 0), "sssooo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["ghost_order"])


def test_an_order_under_another_number_than_the_answer_named_is_found() -> None:
    wrong = [Order("no-9", "buyer-0"), *listed(1, 2, 3)]
    run = rushed(Shown(wrong, 0), "ssssoo", order=True)
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_ack"])


def test_two_orders_of_one_buyer_are_found() -> None:
    twice = [*listed(0, 1, 2), Order("no-9", "buyer-0")]
    run = rushed(Shown(twice, 0), "sssooo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["double_order"])


@pytest.mark.parametrize(("shows", "orders"), [(listed(0, 1, 2, 3), 4), (4, 4)])
def test_a_lost_answer_or_an_error_leaves_open_who_has_the_order(shows: Any, orders: int) -> None:
    for letter, outcome in (("-", "unknown"), ("e", "error")):
        run = rushed(Shown(shows, 0), f"sss{letter}oo")
        assert (run["verdict"], run["violations"], run["orders"]) == ("unknown", [], orders)
        assert run["outcomes"][outcome] == 1
    assert run["why"] == "1 had no final answer (1 error); the shop says: no such page"


def test_a_sale_that_opens_with_other_units_than_asked_for_is_no_evidence() -> None:
    target = Shown(listed(0, 1, 2, 3), 0)
    target.lefts = [3, 0]
    run = rushed(target, "ssssoo")
    assert (run["verdict"], run["violations"]) == ("unknown", ["wrong_stock"])


def test_what_was_not_judged_is_said() -> None:
    run = rushed(Shown(4, None), "ssssoo")
    assert (run["verdict"], run["stock_left"], run["lost_updates"]) == ("exact", None, None)
    assert len(run["judged"]) == 2
    buyers, stock, keys = run["not_judged"]
    assert "orders() returns a number" in buyers
    assert "there is no stock()" in stock
    assert "no idempotency key" in keys


def test_where_all_is_shown_all_is_judged() -> None:
    target = Shown(listed(0, 1, 2, 3), 0)
    target.repeatable = True
    run = rushed(target, "ssssoo")
    assert (len(run["judged"]), run["not_judged"]) == (4, [])


# --- a file that is wrong ------------------------------------------------------------------------

WHOLE = """
from loadtest.target import Target, sold

class MyShop(Target):
    def open(self, stock): ...
    def buy(self, buyer): ...
    def read(self, response): return sold()
    def orders(self): return 0
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WHOLE.replace("def orders", "def order"), r"MyShop has no orders\. orders\(\) has to ret"),
        (WHOLE.replace("def buy", "def by").replace("def read", "def red"), "no buy and no read"),
        (WHOLE.replace("(Target)", ""), "has to define one subclass .* there: none"),
        (WHOLE + "class Other(MyShop): ...", "there: MyShop, Other"),
        (WHOLE + "1 / 0", "my_shop.py cannot be imported: ZeroDivisionError"),
        (WHOLE.replace("class", "clas"), "my_shop.py cannot be imported: SyntaxError"),
        (
            WHOLE + "    def __init__(self, host): self.x = {}['dsn']",
            r"line 9: __init__\(\) raised",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_what_to_do(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "my_shop.py"
    file.write_text(text)
    with pytest.raises(TargetError, match=says):
        load(file, "http://127.0.0.1:9")


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(TargetError, match=r"there is no file nowhere\.py"):
        load("nowhere.py", "http://127.0.0.1:9")


def test_a_target_has_the_name_of_its_file_unless_it_says_another(tmp_path: Path) -> None:
    file = tmp_path / "my_shop.py"
    file.write_text(WHOLE)
    found = load(file, "http://127.0.0.1:9/")
    assert (found.name, found.host) == ("my_shop", "http://127.0.0.1:9")


def test_an_exception_names_its_line_and_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "my_shop.py"
    file.write_text(WHOLE.replace("return 0", "return self.nothing"))
    target = load(file, "http://127.0.0.1:9")
    with pytest.raises(TargetError, match=r"my_shop.py, line 8: orders\(\) raised AttributeError"):
        call(target, target.orders)


@pytest.mark.parametrize(
    ("shows", "says"),
    [
        (None, r"orders\(\) returned None; return a whole number, or a list of Order"),
        ("4", "returned '4'"),
        (True, "returned True"),
        ([(1, "buyer-0")], r"returned \(1, 'buyer-0'\); return Orders in its list"),
    ],
)
def test_orders_that_are_none_are_refused(shows: Any, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        rushed(Shown(shows, 0, showed=shows), "ss")


def test_a_stock_that_is_no_number_is_refused() -> None:
    target = Shown(4, 0)
    target.lefts = ["4", 0]  # type: ignore[list-item]
    with pytest.raises(TargetError, match=r"stock\(\) returned '4'"):
        rushed(target, "ss")


# --- an answer that is read ----------------------------------------------------------------------


class Response:
    def __init__(self, status: int, text: str = "", kind: str = "application/json") -> None:
        self.status_code = status
        self.text = text
        self.headers = {"Content-Type": kind}

    def json(self) -> Any:
        return json.loads(self.text)


class Reads(Shown):
    def __init__(self, returns: Any = None) -> None:
        super().__init__(0, None)
        self.returns = returns

    def read(self, response: Any) -> Any:
        return self.returns or response.json()["outcome"]


def test_no_answer_is_not_read() -> None:
    assert read(Reads(), Response(0)) == NONE


def test_a_page_in_the_place_of_json_is_shown_with_what_it_may_mean() -> None:
    page = Response(200, "<!doctype html>\n<title>Log in</title>", "text/html; charset=utf-8")
    with pytest.raises(TargetError) as found:
        read(Reads(), page)
    assert "read() raised JSONDecodeError" in str(found.value)
    assert "200, text/html: '<!doctype html> <title>Log in</title>'" in str(found.value)
    assert "does prepare() log in and send the CSRF token?" in str(found.value)


def test_an_error_of_the_server_that_cannot_be_read_leaves_open_what_happened() -> None:
    answer = read(Reads(), Response(502, "<h1>Bad gateway</h1>", "text/html"))
    assert (answer.outcome, answer.open) == ("error", True)
    assert "Bad gateway" in answer.why


def test_an_answer_that_is_none_is_refused() -> None:
    with pytest.raises(TargetError, match=r"read\(\) returned 'sold' for 200"):
        read(Reads("sold"), Response(200))


def test_a_purchase_that_returns_no_response_is_refused() -> None:
    with pytest.raises(TargetError, match=r"buy\(\) returned None; return the response"):
        read(Reads(), None)


# --- where it is counted -------------------------------------------------------------------------


def test_rows_are_counted_in_sqlite(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop")) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER)")
    dsn = f"sqlite:///{tmp_path}/shop"
    assert sql(dsn, "INSERT INTO orders VALUES (?)", 7) == []
    assert sql(dsn, "SELECT id FROM orders") == [(7,)]
    with pytest.raises(TargetError, match=r"no such table: other\. Query: SELECT"):
        sql(dsn, "SELECT 1 FROM other")


def test_a_wrong_dsn_is_refused_and_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="unable to open"):
        sql(f"sqlite:///{tmp_path}/other", "SELECT 1")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TargetError, match="the database mysql is not known here"):
        sql("mysql://x/y", "SELECT 1")
    with pytest.raises(TargetError, match="the database says"):
        sql("postgresql://nobody@127.0.0.1:9/none", "SELECT 1")


def test_a_shop_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(TargetError, match=r"no shop answers at http://127\.0\.0\.1:9/x .*start it"):
        ask("http://127.0.0.1:9/x")


# --- whom it may be pointed at -------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_this_machine_may_be_rushed(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "0.0.0.0", "no-such-name.invalid", "::2"])
def test_another_machine_is_not_this_one(host: str) -> None:
    assert not is_loopback(host)


def test_another_machine_is_rushed_with_a_yes_for_its_name_alone() -> None:
    url = "https://192.0.2.1:8443/shop"
    with pytest.raises(
        TargetError, match=r"is not this machine\. 200 .* --i-may-load 192\.0\.2\.1"
    ):
        require_permission(url, "", buyers=200)
    with pytest.raises(TargetError, match=r"--i-may-load names shop\.example"):
        require_permission(url, "shop.example", buyers=200)
    assert "200 buyers will rush 192.0.2.1" in require_permission(url, "192.0.2.1", buyers=200)
    assert require_permission("http://127.0.0.1:8001", "", buyers=200) == ""


@pytest.mark.parametrize("url", ["127.0.0.1:8001", "", "ftp://127.0.0.1", "shop"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(TargetError, match="is no address of a shop"):
        require_permission(url, "", buyers=1)


def test_a_target_is_not_abstract_by_accident() -> None:
    for name in ("open", "buy", "read", "orders"):
        with pytest.raises(NotImplementedError):
            getattr(Target("http://127.0.0.1"), name)(*([1] if name != "orders" else []))
