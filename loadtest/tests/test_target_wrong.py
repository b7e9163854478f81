"""Messages about a wrong target.

A target is the class that describes a third-party shop to the load test. The messages are about
errors in its file, in read(), orders() and stock(), and about a rush on another machine, which
needs the user's permission.
"""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, Self
from urllib.error import URLError

import pytest

from loadtest.judge.intervals import Request
from loadtest.rush.permission import is_loopback, require_permission
from loadtest.rush.target_requester import TargetRequester, read_answer
from loadtest.stack.client import Shop, ShopUnreachable
from loadtest.target import Order, TargetError, ask, sold, sql
from loadtest.target.answer import UNKNOWN_OUTCOME
from loadtest.target.ours import MAX_RETRY_AFTER_SECONDS, OurShop
from loadtest.target.target import Buyer, call_target_method, load_target_file
from loadtest.tests.test_target import SOLD, SOLD_OUT, StubTarget, make_buyer_orders, rush_and_judge
from servers.tests.running_mariadb import running_mariadb

#: The file of a target that has every required method. The tests insert errors into this text.
COMPLETE_TARGET = """
from loadtest.target import Target, sold

class MyShop(Target):
    def open(self, stock): ...
    def buy(self, buyer): ...
    def read(self, response): return sold()
    def orders(self): return 0
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            COMPLETE_TARGET.replace("def orders", "def order"),
            r"MyShop has no orders\. orders\(\) has to ret",
        ),
        (
            COMPLETE_TARGET.replace("def buy", "def by").replace("def read", "def red"),
            "no buy and no read",
        ),
        (
            COMPLETE_TARGET.replace("(Target)", ""),
            "has to define one subclass .*, but defines none",
        ),
        (COMPLETE_TARGET + "class Other(MyShop): ...", "but defines MyShop, Other"),
        (COMPLETE_TARGET + "1 / 0", "my_shop.py cannot be imported: ZeroDivisionError"),
        (COMPLETE_TARGET.replace("class", "clas"), "my_shop.py cannot be imported: SyntaxError"),
        (
            COMPLETE_TARGET + "    def __init__(self, host): self.x = {}['dsn']",
            r"line 9: __init__\(\) raised",
        ),
        (
            COMPLETE_TARGET + "    settles_s = '30'",
            "my_shop.py: settles_s is '30': give a number of seconds",
        ),
        (COMPLETE_TARGET + "    prepare_s = None", "prepare_s is None: give a number of seconds"),
        (COMPLETE_TARGET + "    settles_s = float('nan')", "settles_s is nan: give a number of"),
        (COMPLETE_TARGET + "raise SystemExit", "my_shop.py cannot be imported: SystemExit"),
        (
            COMPLETE_TARGET + "    def __init__(self, host): raise SystemExit('no settings')",
            r"line 9: __init__\(\) raised SystemExit: no settings",
        ),
    ],
)
def test_wrong_file_is_refused_with_advice(tmp_path: Path, text: str, message: str) -> None:
    """Each case makes one mistake in a target's file that is otherwise complete."""
    file = tmp_path / "my_shop.py"
    file.write_text(text)
    with pytest.raises(TargetError, match=message):
        load_target_file(file, "http://127.0.0.1:9")


def test_missing_file_is_refused_with_advice() -> None:
    """The user gave the path of a file that does not exist."""
    with pytest.raises(TargetError, match=r"there is no file nowhere\.py"):
        load_target_file("nowhere.py", "http://127.0.0.1:9")


def test_target_is_named_after_its_file_by_default(tmp_path: Path) -> None:
    """The class in the file has no attribute `name`. The slash that ends the host is removed."""
    file = tmp_path / "my_shop.py"
    file.write_text(COMPLETE_TARGET)
    loaded_target = load_target_file(file, "http://127.0.0.1:9/")
    assert (loaded_target.name, loaded_target.host) == ("my_shop", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            StubTarget(None, stock_left=0, orders_before=None),  # type: ignore[arg-type]
            r"orders\(\) returned None; return a whole number, or a list of Order",
        ),
        (StubTarget(0, stock_left=0, orders_before="4"), "returned '4'"),  # type: ignore[arg-type]
        (StubTarget(0, stock_left=0, orders_before=True), "returned True"),
        (
            StubTarget(-4, stock_left=0),
            r"orders\(\) returned -4; return a whole number, or a list of Order",
        ),
        (
            StubTarget(0, stock_left=0, orders_before=[(1, "buyer-0")]),  # type: ignore[list-item]
            r"returned \(1, 'buyer-0'\); return Orders in its list",
        ),
        (
            StubTarget([Order(number, str(7001 + number)) for number in range(4)], stock_left=0),
            r"orders\(\) returned the buyer '7001', who is not in this rush",
        ),
        # Two pages of the shop's list may overlap. If the order that is on both pages were counted
        # twice, it would look like an oversell.
        (
            StubTarget(make_buyer_orders(0, 1, 2, 3, 2), stock_left=0),
            r"orders\(\) lists order no-3 of \S+ 2 times",
        ),
        (StubTarget(4, stock_left="4"), r"stock\(\) returned '4'"),  # type: ignore[arg-type]
    ],
)
def test_unusable_orders_and_stock_are_refused(target: StubTarget, message: str) -> None:
    """orders() or stock() returns something unusable, before the rush or after it."""
    with pytest.raises(TargetError, match=message):
        rush_and_judge(target, 4 * SOLD + 2 * SOLD_OUT)


# --- the meaning of an answer, which read() returns ----------------------------------------------


class FakeResponse:
    """A response of a shop. Its status is 0 if there was no answer, as in Locust."""

    def __init__(self, status: int, text: str = "", content_type: str = "application/json") -> None:
        self.status_code = status
        self.text = text
        self.headers = {"Content-Type": content_type}

    def json(self) -> Any:
        return json.loads(self.text)


class ReadStubTarget(StubTarget):
    """A target whose read() returns `read_return_value`.

    If `read_return_value` is None, read() returns the field `outcome` of the response's JSON.
    """

    def __init__(self, read_return_value: Any = None) -> None:
        super().__init__(0, None)
        self.read_return_value = read_return_value

    def read(self, response: Any) -> Any:
        return self.read_return_value or response.json()["outcome"]


def test_read_is_not_called_without_an_answer() -> None:
    """The status 0 of a response means that the shop did not answer."""
    assert read_answer(ReadStubTarget(), FakeResponse(0)) == UNKNOWN_OUTCOME


def test_html_in_place_of_json_is_shown_with_a_hint() -> None:
    """The target expects JSON, but the shop answers with its log-in page."""
    page = FakeResponse(200, "<!doctype html>\n<title>Log in</title>", "text/html; charset=utf-8")
    with pytest.raises(TargetError) as refusal:
        read_answer(ReadStubTarget(), page)
    assert "read() raised JSONDecodeError" in str(refusal.value)
    assert "200, text/html: '<!doctype html> <title>Log in</title>'" in str(refusal.value)
    assert "does prepare() log in and send the CSRF token?" in str(refusal.value)


def test_purchase_may_have_happened_after_an_unreadable_server_error() -> None:
    """The answer has the status 502, and HTML that read() cannot read."""
    answer = read_answer(ReadStubTarget(), FakeResponse(502, "<h1>Bad gateway</h1>", "text/html"))
    assert (answer.outcome, answer.may_have_sold) == ("error", True)
    assert "Bad gateway" in answer.why


class UnreadableResponse(FakeResponse):
    """A response whose text cannot be decoded, because its charset does not exist."""

    @property
    def text(self) -> str:
        return b"sold".decode("nonsense")

    @text.setter
    def text(self, text: str) -> None:
        """Ignore the text that FakeResponse sets."""


def test_answer_that_cannot_be_decoded_is_reported() -> None:
    """With status 200 the test ends with an error of the target.

    With status 500 the purchase may have happened, and the rush goes on.
    """
    with pytest.raises(TargetError) as refusal:
        read_answer(ReadStubTarget(), UnreadableResponse(200))
    message = "The response was 200, application/json: 'unreadable, LookupError: unknown encoding"
    assert message in str(refusal.value)
    answer = read_answer(ReadStubTarget(), UnreadableResponse(500))
    assert (answer.outcome, answer.may_have_sold) == ("error", True)


class UnenterableResponse(FakeResponse):
    """A response that raises an error in `with response:`, where Locust counts it as a success."""

    _entered = False

    def __enter__(self) -> Self:
        raise ValueError("cannot be entered")

    def __exit__(self, *_: object) -> None:
        """Do nothing: the block is never entered."""


@pytest.mark.parametrize("step", ["connect", "buy"])
def test_unexpected_error_in_a_step_ends_the_rush(step: str) -> None:
    """An unexpected error in one buyer's task ends the whole rush, with a TargetError.

    If it only ended the task, the rush would wait for that buyer until the deadline. Here the error
    is raised when Locust counts a response, in one of the methods of TargetRequester: in connect(),
    which calls the target's prepare(), or in buy().
    """
    session = SimpleNamespace(
        request=lambda **_: UnenterableResponse(200, '{"outcome": "sold"}'),
        client=SimpleNamespace(_urlopen=None),
    )

    def raise_error(error: ShopUnreachable) -> NoReturn:
        raise error

    target: Any = ReadStubTarget(sold())
    requester = TargetRequester(target, [target.host], session, raise_error)
    target.prepare = lambda _: session.request()
    target.buy = target.prepare
    with pytest.raises(TargetError, match=r"\(\) raised ValueError: cannot be entered"):
        getattr(requester, step)(Buyer(0, "key", session))


def test_wrong_return_values_of_read_and_buy_are_refused() -> None:
    """The target's read() returns a text instead of an Answer, or its buy() returns no response."""
    with pytest.raises(TargetError, match=r"read\(\) returned 'sold' for 200"):
        read_answer(ReadStubTarget("sold"), FakeResponse(200))
    with pytest.raises(TargetError, match=r"buy\(\) returned None; return the response"):
        read_answer(ReadStubTarget(), None)


def exit_with_message(*_: object) -> None:
    """Act as a method of a target that ends the program."""
    raise SystemExit("no settings")


def test_sys_exit_in_a_method_is_an_error_of_the_target() -> None:
    """The load test goes on, and reports the error in read() or in any other method."""
    target = ReadStubTarget()
    target.read = exit_with_message  # type: ignore[method-assign,assignment]
    with pytest.raises(TargetError, match=r"read\(\) raised SystemExit: no settings"):
        read_answer(target, FakeResponse(200))
    with pytest.raises(TargetError, match=r"exit_with_message\(\) raised SystemExit: no settings"):
        call_target_method(target, exit_with_message)


@pytest.mark.parametrize(("outcome", "status"), [("sold", 503), ("sold_out", 201)])
def test_answer_of_our_shop_with_a_contrary_status_is_an_error(outcome: str, status: int) -> None:
    """Some clients look at the status, and others at the body, so both must say the same."""
    shop = OurShop(Shop("http://127.0.0.1:9"), lock="redis", product="apple")
    answer = shop.read(FakeResponse(status, json.dumps({"outcome": outcome, "order": 7})))
    assert (answer.outcome, answer.may_have_sold) == ("error", True)
    assert answer.why == f"{outcome} was answered with status {status}"


@pytest.mark.parametrize("text", ['{"outcome": []}', '{"outcome": {"x": 1}}', 100_000 * "["])
def test_body_without_an_outcome_of_our_shop_is_not_an_answer(text: str) -> None:
    """The outcome is not a text, or the body is not JSON: it is nested too deeply to be parsed."""
    shop = OurShop(Shop("http://127.0.0.1:9"), lock="redis", product="apple")
    assert shop.read(FakeResponse(200, text)) == UNKNOWN_OUTCOME


def test_malformed_lock_in_an_answer_is_ignored() -> None:
    """The field `lock` of the answer has the text "redis" instead of an object with the fence."""
    shop = OurShop(Shop("http://127.0.0.1:9"), lock="redis", product="apple")
    request = Request("key", sent_at=1)
    answer = shop.read(FakeResponse(200, '{"outcome": "sold", "order": 1, "lock": "redis"}'))
    answer.record_in(request)
    assert (request.outcome, request.order, request.fence) == ("sold", 1, None)


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("2", 2.0), ("²", 0.0), ("soon", 0.0), (400 * "9", MAX_RETRY_AFTER_SECONDS)],
    ids=["2", "superscript", "word", "long"],
)
def test_retry_after_of_our_shop_is_bounded(retry_after: str, seconds: float) -> None:
    """A Retry-After that is not a number counts as 0 s, and a long one is reduced to a maximum.

    The character ² is a digit for str.isdigit(), but float() refuses it.
    """
    shop = OurShop(Shop("http://127.0.0.1:9"), lock="redis", product="apple")
    response = FakeResponse(503, '{"outcome": "full"}')
    response.headers["Retry-After"] = retry_after
    assert shop.read(response).retry_after_seconds == seconds


# --- the shop's database --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shop", "a#b.db", "a?b.db", "a%41.db", "a b.db"])
def test_rows_are_written_and_read_in_sqlite(tmp_path: Path, name: str) -> None:
    """The name of the file may contain characters that have a meaning in a URI."""
    with closing(sqlite3.connect(tmp_path / name)) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER)")
    dsn = f"sqlite:///{tmp_path}/{name}"
    assert sql(dsn, "INSERT INTO orders VALUES (?)", 7) == []
    assert sql(dsn, "SELECT id FROM orders") == [(7,)]
    with pytest.raises(TargetError, match=r"no such table: other\. Query: SELECT"):
        sql(dsn, "SELECT 1 FROM other")


def test_wrong_dsn_is_refused_and_creates_no_database(tmp_path: Path) -> None:
    """By default, SQLite would create the file if it does not exist."""
    for name in ("other", "a#b.db", "a?b.db"):
        with pytest.raises(TargetError, match="unable to open"):
            sql(f"sqlite:///{tmp_path}/{name}", "SELECT 1")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TargetError, match="cannot read a database at oracle"):
        sql("oracle://x/y", "SELECT 1")
    with pytest.raises(TargetError, match="a query of the database failed"):
        sql("postgresql://nobody@127.0.0.1:9/none", "SELECT 1")


def test_rows_are_written_and_read_in_mariadb() -> None:
    """sql() returns the rows of a query, and raises the database's error as a TargetError."""
    with running_mariadb() as server:
        dsn = server.url()
        assert sql(dsn, "CREATE TABLE orders (id INTEGER)") == []
        assert sql(dsn, "INSERT INTO orders VALUES (%s)", 7) == []
        assert sql(dsn, "SELECT id FROM orders") == [(7,)]
        with pytest.raises(TargetError, match="other' doesn't exist"):
            sql(dsn, "SELECT 1 FROM other")


def test_missing_client_of_mysql_is_reported_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL is not installed."""
    monkeypatch.setitem(sys.modules, "pymysql", None)  # with None, importing it fails
    with pytest.raises(TargetError, match="make install-mysql"):
        sql("mysql://root@127.0.0.1/shop", "SELECT 1")


def refuse_connection() -> None:
    """Act as a method of a target whose shop does not run."""
    raise URLError(ConnectionRefusedError(111, "Connection refused"))


def raise_key_error() -> None:
    """Act as a method of a target with an error in its code."""
    raise KeyError("order")


def test_advice_depends_on_whether_the_shop_answers() -> None:
    """If the shop refuses the connection, the advice is to start it again.

    After any other error the advice is to repair the target.
    """
    advice_on_shop = r"URLError: .*Does the shop still run\? Its own log says"
    with pytest.raises(TargetError, match=advice_on_shop):
        call_target_method(StubTarget(0, stock_left=0), refuse_connection)
    with pytest.raises(TargetError, match=r"Repair it, and run again"):
        call_target_method(StubTarget(0, stock_left=0), raise_key_error)


def test_missing_shop_is_reported_with_advice() -> None:
    """No program listens at the port of the shop."""
    with pytest.raises(TargetError, match=r"no shop answers at http://127\.0\.0\.1:9/x .*start it"):
        ask("http://127.0.0.1:9/x")


# --- the machines that a rush may load -----------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_this_machine"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("localhost", True),
        ("::1", True),
        ("192.0.2.1", False),
        ("0.0.0.0", False),
        ("no-such-name.invalid", False),
        ("::2", False),
    ],
)
def test_this_machine_is_recognized_by_its_loopback_address(
    host: str, is_this_machine: bool
) -> None:
    """A host that is not known, or that is not a loopback address, counts as another machine."""
    assert is_loopback(host) == is_this_machine


def test_another_machine_is_loaded_only_with_the_users_permission() -> None:
    """The user permits a rush on another machine with --i-may-load and the name of that machine.

    A rush on this machine needs no permission, and has no warning.
    """
    url = "https://192.0.2.1:8443/shop"
    with pytest.raises(
        TargetError, match=r"is not this machine\. 200 .* --i-may-load 192\.0\.2\.1"
    ):
        require_permission(url, "", buyers=200)
    with pytest.raises(TargetError, match=r"--i-may-load allows shop\.example"):
        require_permission(url, "shop.example", buyers=200)
    assert "200 buyers will send requests to 192.0.2.1" in require_permission(
        url, "192.0.2.1", buyers=200
    )
    assert require_permission("http://127.0.0.1:8001", "", buyers=200) == ""


@pytest.mark.parametrize("url", ["127.0.0.1:8001", "", "ftp://127.0.0.1", "shop", "http://[::1"])
def test_invalid_address_is_refused(url: str) -> None:
    """The address of a shop is a URL with the scheme http or https and a host."""
    with pytest.raises(TargetError, match="is not the address of a shop"):
        require_permission(url, "", buyers=1)
