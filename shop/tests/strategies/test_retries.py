"""The optimistic strategies: again after a conflict, until a deadline; never after a doubt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.models import F
from pytest_django import Settings

from shop.demo.interleaving import Interleaving
from shop.errors import Busy
from shop.models import Product
from shop.sale import retrying
from shop.sale.on_sale import require_on_sale
from shop.sale.points import installed, point
from shop.sale.purchase import Attempt, Receipt
from shop.sale.retrying import Conflict, until_it_fits
from shop.tests.database import kill_this_threads_backend
from shop.tests.till import (
    APPLE,
    Answer,
    assert_asks_to_come_back,
    books,
    buy,
    committed,
    open_sale,
)

OPTIMISTIC = pytest.mark.parametrize("lock", ["version", "serializable"])
RECEIPT = Receipt(order_id=1, sale_id=1, stock_seen=1)


class Clock:
    """Replaces `time`: only its own sleeps advance it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.time = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(retrying, "time", self.time)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def database_error(sqlstate: str | None) -> OperationalError:
    """As Django raises it, from psycopg's."""
    error = OperationalError("from a test")
    error.__cause__ = psycopg.errors.lookup(sqlstate)() if sqlstate else psycopg.OperationalError()
    return error


def failing(*errors: Exception) -> tuple[Callable[[Attempt], Receipt], list[Exception]]:
    """A purchase that fails with each of `errors` in turn and then sells; the errors not met."""
    left = list(errors)

    def buy_once(attempt: Attempt) -> Receipt:
        if left:
            raise left.pop(0)
        return RECEIPT

    return until_it_fits(buy_once), left


# --- the deadline -------------------------------------------------------------------------------


def test_the_wait_is_what_ends_the_tries_and_not_their_number(
    clock: Clock, settings: Settings
) -> None:
    """200 buyers need up to 22 tries; a cap of 5 sold 70 of 100 units."""
    settings.SHOP_LOCK_WAIT = 1000.0
    buying, left = failing(*[Conflict()] * 200)
    assert buying(Attempt(APPLE, "ada")) is RECEIPT
    assert not left
    assert clock.slept[0] <= retrying.FIRST_PAUSE
    assert retrying.LONGEST_PAUSE / 2 < max(clock.slept) <= retrying.LONGEST_PAUSE
    assert len(set(clock.slept)) == 200, "the pauses are random"


def test_when_the_wait_is_over_the_answer_is_busy(clock: Clock, settings: Settings) -> None:
    settings.SHOP_LOCK_WAIT = 5.0
    buying, _ = failing(*[Conflict()] * 10_000)
    said = "gave up after repeated write conflicts; nothing was sold"
    with pytest.raises(Busy, match=said) as caught:
        buying(Attempt(APPLE, "ada"))
    assert isinstance(caught.value.__cause__, Conflict)
    assert 5.0 < clock.now < 5.0 + retrying.LONGEST_PAUSE


# --- what is a conflict, and what is not --------------------------------------------------------


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_serialization_failure_and_a_deadlock_are_tried_again(
    sqlstate: str, clock: Clock
) -> None:
    buying, _ = failing(database_error(sqlstate))
    assert buying(Attempt(APPLE, "ada")) is RECEIPT


@pytest.mark.parametrize("sqlstate", [None, "57P01", "55P03", "57014", "40003"])
def test_a_lost_connection_or_a_timeout_is_not(sqlstate: str | None, clock: Clock) -> None:
    error = database_error(sqlstate)
    buying, _ = failing(error)
    with pytest.raises(OperationalError) as caught:
        buying(Attempt(APPLE, "ada"))
    assert caught.value is error
    assert clock.slept == []


# --- the same on PostgreSQL ---------------------------------------------------------------------


@committed
@OPTIMISTIC
def test_a_connection_lost_at_the_commit_is_answered_unknown_and_not_retried(lock: str) -> None:
    """The order may exist: a second try without a key would sell a second unit."""
    open_sale(2)
    reached: list[str] = []

    def break_once(place: str, facts: Mapping[str, object]) -> None:
        reached.append(place)
        if place == "before_commit":
            kill_this_threads_backend()

    with installed(break_once):
        answer = buy(lock=lock)
    assert (answer.status, answer.body["outcome"]) == (503, "unknown")
    assert reached == ["begins", "after_read", "before_commit"]
    assert books() == (0, 2)


@committed
def test_a_conflict_that_postgresql_finds_at_the_commit_is_tried_again() -> None:
    """A read what R wrote, R read what A wrote, and R commits while A is about to."""

    def rival() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            assert Product.objects.get(name=APPLE).amount == 2
            Product.objects.filter(name="pear").update(version=F("version") + 1)
            point("has written")

    open_sale(2)
    open_sale(9, product="pear")
    require_on_sale(APPLE)  # on a connection of its own
    with Interleaving() as threads:
        r = threads.enter("R", rival).runs_to("has written")
        a = threads.enter("A", buy_by_a_table_scan).runs_to("before_commit")
        r.finishes()
        answer = a.finishes()
    assert (answer.status, answer.body["stock_seen"]) == (201, 2)
    assert threads.log[1:] == [*("A after_read", "A before_commit")] * 2
    assert books() == (1, 1)


def buy_by_a_table_scan() -> Answer:
    """So that the pears count as read too."""
    with connection.cursor() as cursor:
        cursor.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
    return buy(lock="serializable")


@committed
def test_after_a_conflict_at_the_commit_nothing_is_in_doubt(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL goes away between the two tries: the first one certainly sold nothing."""
    open_sale(1)

    def conflict() -> None:
        raise database_error("40001")

    def go_away(seconds: float) -> None:
        connection.close()
        monkeypatch.setitem(connection.settings_dict, "HOST", str(tmp_path))

    monkeypatch.setattr(connections["default"], "commit", conflict)
    monkeypatch.setattr(clock.time, "sleep", go_away)
    answer = buy(lock="serializable")
    monkeypatch.undo()
    assert_asks_to_come_back(
        answer, "unavailable", "the database does not answer; nothing was sold"
    )
    assert books() == (0, 1)
