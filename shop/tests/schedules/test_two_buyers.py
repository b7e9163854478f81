"""Schedules of two buyers on PostgreSQL who reconnect, time out or lose the connection.

A schedule such as `ABBAAB` says whose move is next. Each buyer has three: read, write, commit.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from select import select

import pytest
from django.db import DatabaseError, connection, transaction

from shop.sale import known_products
from shop.sale.purchase import Attempt, Receipt, read_stock, sell_one
from shop.schedules.two_buyers import TimedOut, run_schedule
from shop.strategies import STRATEGIES
from shop.tests.purchases import TIMEOUT_SECONDS, committed

pytestmark = committed

#: The buyers whose first attempt timed out.
buyers_timed_out: set[str] = set()


@pytest.mark.parametrize("schedule", ["ABBAAB", "ABBABA", "BAABAB", "BAABBA"])
def test_first_purchase_of_a_process_may_reconnect(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first purchase of a process looks the product up, and then opens a new connection.

    The run must notice that a buyer waits, although the connection is not the first one.
    """
    monkeypatch.setattr(known_products, "_known_products", set())
    run = run_schedule("none", schedule, units=1)
    assert run.report.oversold == 1, run.log


def sell_plainly(attempt: Attempt) -> Receipt:
    with transaction.atomic():
        return sell_one(attempt)


def sell_in_a_timed_out_transaction(attempt: Attempt) -> Receipt:
    """Try to sell in a transaction that the database ends between the read and the write."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '1ms'")
        stock = read_stock(attempt)
        server = connection.connection.pgconn.socket
        # The socket is readable once the database has closed the connection.
        readable_sockets, _, _ = select([server], [], [], TIMEOUT_SECONDS)
        assert readable_sockets
        return sell_one(attempt, read=lambda attempt: stock)


def time_out_at_the_first_attempt(attempt: Attempt) -> Receipt:
    """Let the first attempt of each buyer fail by a timeout, and sell at later attempts."""
    if attempt.buyer in buyers_timed_out:
        return sell_plainly(attempt)
    buyers_timed_out.add(attempt.buyer)
    return sell_in_a_timed_out_transaction(attempt)


def sell_with_a_retry_inside(attempt: Attempt) -> Receipt:
    """Sell, and retry after any database error, as a strategy written in the workshop may do."""
    try:
        return sell_in_a_timed_out_transaction(attempt)
    except DatabaseError:
        connection.close()
        return sell_plainly(attempt)


@pytest.mark.parametrize("buy", [time_out_at_the_first_attempt, sell_with_a_retry_inside])
def test_timed_out_transaction_is_no_outcome(
    buy: Callable[[Attempt], Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database ends the transaction of a stopped buyer, and a second attempt then sells.

    A schedule orders the steps of one attempt per buyer. The outcome of a second attempt would
    prove nothing, so the run raises TimedOut.
    """
    buyers_timed_out.clear()
    monkeypatch.setitem(STRATEGIES, "none", replace(STRATEGIES["none"], buy=buy))
    with pytest.raises(TimedOut, match="the database ended a transaction"):
        run_schedule("none", "AAABBB", units=1)


def test_run_raises_if_a_connection_breaks_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks without a message of PostgreSQL. The run still raises TimedOut."""

    def break_the_connection_then_sell(attempt: Attempt) -> Receipt:
        try:
            with transaction.atomic():
                stock = read_stock(attempt)
                shut_down(connection.connection.pgconn.socket)
                return sell_one(attempt, read=lambda attempt: stock)
        except DatabaseError:
            connection.close()
            return sell_plainly(attempt)

    monkeypatch.setitem(
        STRATEGIES, "none", replace(STRATEGIES["none"], buy=break_the_connection_then_sell)
    )
    with pytest.raises(TimedOut, match="the database ended a transaction"):
        run_schedule("none", "AAABBB", units=1)


def shut_down(descriptor: int) -> None:
    """Close the connection of a socket in both directions."""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
