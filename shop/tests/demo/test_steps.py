"""Two buyers, stepped through as on the page, each in a thread of its own."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection
from django.test import Client

from shop.demo import hooks as demo
from shop.demo import steps
from shop.demo.mine import strategy_of
from shop.ops.redis import locks_client
from shop.strategies import STRATEGIES
from shop.tests.till import books, committed, eventually


@pytest.fixture(autouse=True)
def _hooks() -> Iterator[None]:
    """The demo's hooks, which another test may have removed. Afterwards stopped buyers leave."""
    demo.install()
    yield
    now = steps.current()
    if now is None:
        return
    locks_client().delete(steps.ROUND)
    eventually(lambda: None not in outcomes(now["round"]), what="both are out")


def outcomes(round_id: str) -> list[str | None]:
    """Of those who have come to a round; None for one who is inside."""
    there: Any = locks_client().hvals(steps.board(round_id))
    return [json.loads(one).get("outcome") for one in there]


def of(buyer: str) -> dict[str, Any]:
    now = steps.state()
    assert now is not None
    return dict(now["buyers"][buyer])


class Round:
    """What a person does at the page."""

    def __init__(self, lock: str) -> None:
        self.id = steps.begin(lock)

    def step(self, buyer: str, to: str) -> dict[str, Any]:
        """One press of a button, and what is shown in the end."""
        steps.step(self.id, buyer)
        eventually(lambda: to in self.place(buyer), what=f"{buyer} is {to}: {of(buyer)}")
        return of(buyer)

    def blocked(self, buyer: str) -> dict[str, Any]:
        """What is shown once this buyer counts as blocked."""
        eventually(lambda: "blocked" in self.place(buyer), what=f"{buyer} is blocked")
        return of(buyer)

    def place(self, buyer: str) -> tuple[Any, ...]:
        now = of(buyer)
        return now["status"], now.get("at"), now.get("outcome")


@committed
@pytest.mark.parametrize("lock", ["redis", "row-lock", "skip-locked"])
def test_the_same_steps_are_blocked_under_a_lock(lock: str) -> None:
    """Without it B would reach `checked` too, having read 1."""
    buyers = Round(lock)
    buyers.step("A", "checked")
    buyers.step("B", "blocked")
    blocked = of("B")
    assert blocked["waits_for"] == ("lock" if lock == "redis" else "database")
    assert 0 < blocked["left_s"] <= (settings.SHOP_LOCK_WAIT if lock == "redis" else 60)
    with pytest.raises(steps.NotNow):
        steps.step(buyers.id, "B")
    for place in ("paid", "written", "sold"):
        buyers.step("A", place)
    eventually(lambda: "sold_out" in buyers.place("B"), what="B is answered")
    assert of("B")["saw"] == 0
    assert books(steps.PRODUCT) == (1, 0)


@committed
def test_a_buyer_with_the_lock_who_waits_for_the_other_ones_row_says_so_and_for_how_long(
    settings: Any,
) -> None:
    """A's lock has ended while A was discussed: B has the lock, and claims the row that A keeps."""
    settings.SHOP_LOCK_TTL = 1.0  # after which B looks again
    buyers = Round("redis")
    buyers.step("A", "checked")
    buyers.step("B", "blocked")
    assert of("B")["waits_for"] == "lock"
    locks = [key for key in locks_client().scan_iter() if not key.startswith(b"page:")]
    locks_client().delete(*locks)
    eventually(lambda: of("B").get("waits_for") == "database", what="B has the lock")
    assert buyers.blocked("B")["left_s"] > settings.SHOP_LOCK_WAIT


@committed
def test_a_double_click_is_one_step() -> None:
    buyers = Round("none")
    buyers.step("A", "checked")
    steps.permit(buyers.id, "A", "checked")
    steps.permit(buyers.id, "A", "checked")
    eventually(lambda: "paid" in buyers.place("A"), what="A has paid")
    assert buyers.step("A", "written")["at"] == "written"
    assert books(steps.PRODUCT) == (0, 1)


@committed
@pytest.mark.parametrize(
    ("kind", "name", "executed"),
    [
        (redis.Redis, "hsetnx", True),
        (redis.Redis, "hset", True),
        (redis.Redis, "blpop", False),
    ],
)
def test_a_redis_that_is_silent_for_a_moment_does_not_end_the_round(
    kind: type, name: str, executed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a buyer would have come, and nobody would be there to take its steps."""
    command, silent = getattr(kind, name), list[str]()

    def silent_once(*args: Any, **options: Any) -> Any:
        if silent:
            return command(*args, **options)
        silent.append(name)
        if executed:
            command(*args, **options)
        raise redis.TimeoutError("Timeout reading from socket")

    monkeypatch.setattr(kind, name, silent_once)
    buyers = Round("none")
    for place in ("checked", "paid", "written", "sold"):
        buyers.step("A", place)
    assert silent == [name]
    assert books(steps.PRODUCT) == (1, 0)


@committed
def test_a_press_at_a_silent_redis_is_answered_and_the_buyer_comes_when_it_speaks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Redis that was paused executes the command later: nobody would step the buyer it shows."""
    buyers, answered, command = Round("none"), threading.Event(), redis.Redis.hsetnx

    def silent(self: redis.Redis, *args: Any) -> Any:
        came = command(self, *args)
        if not answered.is_set():
            raise redis.TimeoutError("Timeout reading from socket")
        return came

    monkeypatch.setattr(redis.Redis, "hsetnx", silent)
    steps.step(buyers.id, "A")
    answered.set()
    eventually(lambda: "checked" in buyers.place("A"), what="A has come")


@committed
@pytest.mark.parametrize("lock", ["none", "redis"])
def test_a_buyer_who_is_left_alone_rolls_back_and_gives_the_lock_back(
    lock: str, settings: Any
) -> None:
    buyers = Round(lock)
    buyers.step("A", "checked")
    buyers.step("A", "paid")
    settings.SHOP_DEMO_STEP_TIMEOUT = 0.5
    assert "left alone" in buyers.step("A", "rolled_back")["said"]
    assert books(steps.PRODUCT) == (0, 1)
    settings.SHOP_DEMO_STEP_TIMEOUT = 60.0
    buyers.step("B", "checked")


@committed
def test_a_new_round_sends_everybody_of_the_last_one_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A has written, B waits for A's row: both go, and neither has bought anything. In a file of
    one's own that is no mistake in the file."""
    file = tmp_path / "ex05.py"
    file.write_text("from shop.strategies.row_lock import STRATEGY\nbuy = STRATEGY.buy\n")
    monkeypatch.setitem(STRATEGIES, "mine", strategy_of("mine", file))
    before = Round("mine")
    for place in ("checked", "paid", "written"):
        before.step("A", place)
    before.step("B", "blocked")
    Round("none")
    assert books(steps.PRODUCT) == (0, 1)
    eventually(lambda: outcomes(before.id) == ["rolled_back"] * 2, what="both are out")
    assert books(steps.PRODUCT) == (0, 1)
    with pytest.raises(steps.NotNow):
        steps.step(before.id, "A")


@committed
def test_a_stopped_buyer_outlasts_the_shops_timeouts_and_leaves_nothing_in_the_pool() -> None:
    buyers = Round("none")
    buyers.step("A", "checked")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name = 'oversold buyer A' AND datname = current_database()"
        )
        assert cursor.fetchone() == (1,)
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("6s",)  # of everybody else
    assert "idle_in_transaction_session_timeout=65000" in steps.timeouts(), "60 s a stop, and 5"


@committed
def test_the_steps_can_be_taken_over_http_alone() -> None:
    page = Client()
    begun = page.post("/steps", {"lock": "none"})
    assert begun.status_code == 201
    round_id = begun.json()["round"]
    assert page.post("/steps/step", {"round": round_id, "buyer": "A"}).status_code == 202
    eventually(lambda: "stopped" in page.get("/state").content.decode(), what="A is stopped")
    answer = page.get("/state").json()["steps"]
    assert answer["lock"] == "none"
    assert answer["sale"]["initial_stock"] == 1
    assert answer["buyers"]["A"]["at"] == "checked"
    assert answer["buyers"]["B"] == {"status": "ready"}
    assert page.post("/steps/step", {"round": "another", "buyer": "A"}).status_code == 409
    assert page.post("/steps/step", {"round": round_id, "buyer": "C"}).status_code == 400
    refused = page.post("/steps", {"lock": "nonsense"})
    assert (refused.status_code, refused.json()["error"]) == (400, "unknown lock")
