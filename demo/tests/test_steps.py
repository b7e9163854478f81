"""Two buyers, A and B, whose purchases advance step by step, as on the demo's page.

In a round, both buyers want the only unit. A visitor presses a buyer's button for each step.
Between two steps the buyer stops: at `checked` after its read of the stock, at `written` before its
COMMIT. Each press sends the buyer a permit to leave its stop.
"""

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

from demo import hooks, steps
from demo.own_strategies import make_strategy
from shop.ops.redis import locks_client
from shop.sale import points
from shop.strategies import STRATEGIES
from shop.tests.purchases import committed, count_orders_and_stock, eventually


@pytest.fixture(autouse=True)
def _demo_hooks() -> Iterator[None]:
    """Install the demo's hooks, which stop the buyers. After the test, end the round's buyers."""
    hooks.install_hooks()
    yield
    current_round = steps.read_round()
    if current_round is not None:
        locks_client().delete(steps.ROUND_KEY)
        eventually(
            lambda: None not in read_outcomes(current_round["round"]),
            what="both buyers have ended",
        )
    points.install_probe(None)


def read_outcomes(round_id: str) -> list[str | None]:
    """Return the outcome of each buyer that has started in a round.

    The outcome is None if the buyer's purchase has not ended.
    """
    states: Any = locks_client().hvals(steps.states_key(round_id))
    return [json.loads(state).get("outcome") for state in states]


def read_buyer_state(buyer: str) -> dict[str, Any]:
    """Return the state of a buyer of the current round, as the page shows it."""
    state = steps.read_round_state()
    assert state is not None
    return dict(state["buyers"][buyer])


class PageRound:
    """A round, which the test begins and advances as a visitor of the page does."""

    def __init__(self, lock: str) -> None:
        self.id = steps.begin_round(lock)

    def step(self, buyer: str, position: str) -> dict[str, Any]:
        """Press a buyer's button, wait until the buyer is at a position, and return its state.

        position  a status such as `blocked`, a stop such as `checked`, or an outcome such as `sold`
        """
        steps.advance_buyer(self.id, buyer)
        eventually(
            lambda: position in self.read_position(buyer),
            what=f"{buyer} is {position}: {read_buyer_state(buyer)}",
        )
        return read_buyer_state(buyer)

    def wait_until_blocked(self, buyer: str) -> dict[str, Any]:
        """Wait until this buyer counts as blocked, and return its state."""
        eventually(lambda: "blocked" in self.read_position(buyer), what=f"{buyer} is blocked")
        return read_buyer_state(buyer)

    def read_position(self, buyer: str) -> tuple[Any, ...]:
        """Return the buyer's status, its stop and its outcome. Stop and outcome may be None."""
        state = read_buyer_state(buyer)
        return state["status"], state.get("at"), state.get("outcome")


@committed
@pytest.mark.parametrize("lock", ["redis", "row-lock", "skip-locked"])
def test_second_buyer_is_blocked_under_a_lock(lock: str) -> None:
    """While A is stopped after its read, B has to wait for A, and then finds the unit sold.

    Without a lock B would also read one unit, and stop at `checked`.
    """
    if lock == "redis":
        awaited_resource = "lock"
        longest_wait = settings.SHOP_LOCK_WAIT
    else:
        awaited_resource = "database"
        longest_wait = settings.SHOP_DEMO_STEP_TIMEOUT
    page_round = PageRound(lock)
    page_round.step("A", "checked")
    page_round.step("B", "blocked")
    state_of_b = read_buyer_state("B")
    assert state_of_b["waits_for"] == awaited_resource
    assert 0 < state_of_b["left_s"] <= longest_wait
    with pytest.raises(steps.NotNow):
        steps.advance_buyer(page_round.id, "B")
    for position in ("written", "sold"):
        page_round.step("A", position)
    eventually(lambda: "sold_out" in page_round.read_position("B"), what="B is answered")
    assert read_buyer_state("B")["saw"] == 0
    assert count_orders_and_stock(steps.PRODUCT) == (1, 0)


@committed
def test_lock_holder_waiting_for_a_row_is_shown_as_blocked(settings: Any) -> None:
    """A's lock is deleted while A is stopped. B gets the lock, but waits for A's row lock.

    Under `redis` a buyer reads the stock by an UPDATE, which locks the product's row.
    """
    settings.SHOP_LOCK_TTL = 1.0  # B tries again within this time
    page_round = PageRound("redis")
    page_round.step("A", "checked")
    page_round.step("B", "blocked")
    assert read_buyer_state("B")["waits_for"] == "lock"
    locks = [key for key in locks_client().scan_iter() if not key.startswith(b"page:")]
    locks_client().delete(*locks)
    # A buyer under `redis` sends its first statement only when it has the lock.
    eventually(
        lambda: read_buyer_state("B").get("waits_for") == "database",
        what="B has the lock, and waits for A's row lock",
    )
    # A wait for a row may take SHOP_DEMO_STEP_TIMEOUT, which is longer than SHOP_LOCK_WAIT.
    assert page_round.wait_until_blocked("B")["left_s"] > settings.SHOP_LOCK_WAIT


@committed
def test_double_click_is_one_step() -> None:
    """A double click sends two permits to leave the same stop.

    The second permit must not let the buyer leave its next stop.
    """
    page_round = PageRound("none")
    page_round.step("A", "checked")
    steps.send_permit(page_round.id, "A", "checked")
    steps.send_permit(page_round.id, "A", "checked")
    eventually(lambda: "written" in page_round.read_position("A"), what="A has written")
    permits = steps.permits_key(page_round.id, "A")
    eventually(lambda: not locks_client().llen(permits), what="the second click was taken")
    assert count_orders_and_stock(steps.PRODUCT) == (0, 1)
    page_round.step("A", "sold")


@committed
@pytest.mark.parametrize(
    ("command_name", "is_executed"), [("hsetnx", True), ("hset", True), ("blpop", False)]
)
def test_round_survives_a_silent_redis(
    command_name: str, is_executed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A buyer's thread repeats a command that Redis has not answered, and the round goes on.

    If the thread ended instead, the page would show a buyer that never takes a step.

    is_executed  whether Redis executes the unanswered command. This is not tested with BLPOP: it
                 would remove the permit for which the repeated BLPOP waits
    """
    command = getattr(redis.Redis, command_name)
    unanswered_commands: list[str] = []

    def lose_first_answer(*args: Any, **options: Any) -> Any:
        if unanswered_commands:
            return command(*args, **options)
        unanswered_commands.append(command_name)
        if is_executed:
            command(*args, **options)
        raise redis.TimeoutError("Timeout reading from socket")

    monkeypatch.setattr(redis.Redis, command_name, lose_first_answer)
    page_round = PageRound("none")
    for position in ("checked", "written", "sold"):
        page_round.step("A", position)
    assert unanswered_commands == [command_name]
    assert count_orders_and_stock(steps.PRODUCT) == (1, 0)


@committed
def test_buyer_starts_once_redis_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buyer that starts while Redis is silent repeats its first command until Redis answers.

    Redis executes the command, but its answers are lost. If the buyer's thread ended then, the page
    would show a buyer that never takes a step.
    """
    page_round = PageRound("none")
    redis_answers = threading.Event()
    hsetnx = redis.Redis.hsetnx

    def silent_hsetnx(self: redis.Redis, *args: Any) -> Any:
        reply = hsetnx(self, *args)
        if not redis_answers.is_set():
            raise redis.TimeoutError("Timeout reading from socket")
        return reply

    monkeypatch.setattr(redis.Redis, "hsetnx", silent_hsetnx)
    steps.advance_buyer(page_round.id, "A")
    redis_answers.set()
    eventually(lambda: "checked" in page_round.read_position("A"), what="A has read the stock")


@committed
@pytest.mark.parametrize("lock", ["none", "redis"])
def test_buyer_rolls_back_if_its_next_step_takes_too_long(lock: str, settings: Any) -> None:
    """Buyer A is stopped, and gets no permit in time. So it rolls back, and does not block B."""
    page_round = PageRound(lock)
    page_round.step("A", "checked")
    settings.SHOP_DEMO_STEP_TIMEOUT = 0.5
    # A takes its second step, but the test sends no third step within 0.5 s. So A rolls back.
    assert "no step for" in page_round.step("A", "rolled_back")["said"]
    assert count_orders_and_stock(steps.PRODUCT) == (0, 1)
    settings.SHOP_DEMO_STEP_TIMEOUT = 60.0
    page_round.step("B", "checked")


@committed
def test_new_round_rolls_the_previous_buyers_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new round ends the purchases of A, which has written, and of B, which waits for A's row.

    Their strategy is in the user's own file. Their outcome must be `rolled_back`, not an error for
    a mistake in that file.
    """
    file = tmp_path / "ex05.py"
    file.write_text("from shop.strategies.row_lock import STRATEGY\nbuy = STRATEGY.buy\n")
    monkeypatch.setitem(STRATEGIES, "mine", make_strategy("mine", file))
    previous_round = PageRound("mine")
    for position in ("checked", "written"):
        previous_round.step("A", position)
    previous_round.step("B", "blocked")
    PageRound("none")
    assert count_orders_and_stock(steps.PRODUCT) == (0, 1)
    eventually(
        lambda: read_outcomes(previous_round.id) == ["rolled_back"] * 2,
        what="both buyers have ended",
    )
    assert count_orders_and_stock(steps.PRODUCT) == (0, 1)
    with pytest.raises(steps.NotNow):
        steps.advance_buyer(previous_round.id, "A")


@committed
def test_stopped_buyer_outlasts_the_timeouts_of_the_shop() -> None:
    """A visitor may need more time for a step than the shop's database timeouts allow.

    So the connection of a stepped buyer has longer timeouts.
    """
    page_round = PageRound("none")
    page_round.step("A", "checked")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name = 'oversold buyer A' AND datname = current_database()"
        )
        assert cursor.fetchone() == (1,)
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("6s",)  # the shop's own timeout, for all other connections
    timeouts = steps.make_connection_options("A")["options"]
    # A stop may last 60 s, SHOP_DEMO_STEP_TIMEOUT.
    assert "idle_in_transaction_session_timeout=65000" in timeouts, "5 s longer than a stop"


@committed
def test_round_is_begun_and_advanced_over_http() -> None:
    """A round begins, and its buyer A takes a step and stops after its read.

    Unknown rounds, buyers and strategies are refused.
    """
    page = Client()
    new_round = page.post("/steps", {"lock": "none"})
    assert new_round.status_code == 201
    round_id = new_round.json()["round"]
    assert page.post("/steps/step", {"round": round_id, "buyer": "A"}).status_code == 202
    eventually(lambda: "stopped" in page.get("/state").content.decode(), what="A is stopped")
    state_of_round = page.get("/state").json()["steps"]
    assert state_of_round["lock"] == "none"
    assert state_of_round["sale"]["initial_stock"] == 1
    assert state_of_round["buyers"]["A"]["at"] == "checked"
    assert state_of_round["buyers"]["B"] == {"status": "ready"}
    assert page.post("/steps/step", {"round": "another", "buyer": "A"}).status_code == 409
    assert page.post("/steps/step", {"round": round_id, "buyer": "C"}).status_code == 400
    refusal = page.post("/steps", {"lock": "nonsense"})
    assert (refusal.status_code, refusal.json()["error"]) == (400, "unknown lock")
