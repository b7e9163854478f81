"""run_schedule() on PostgreSQL, with buyers who reconnect, time out or lose the connection.

It moves two buyers in the order of a schedule such as `ABBAAB`. Each letter is one move of that
buyer: its read, its write, or its commit.
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

    PostgreSQL tells run_schedule() which connections wait. So run_schedule() must know the buyer's
    new connection, and not only the first one. Each of these schedules has a buyer who waits at its
    write. Both buyers read before the first write, so the only unit is sold twice.
    """
    monkeypatch.setattr(known_products, "_known_products", set())
    run = run_schedule("none", schedule, units=1)
    assert run.report.oversold == 1, run.log


def sell_without_a_timeout(attempt: Attempt) -> Receipt:
    """Sell in a transaction that the database does not end."""
    with transaction.atomic():
        return sell_one(attempt)


def sell_in_a_timed_out_transaction(attempt: Attempt) -> Receipt:
    """Try to sell in a transaction that the database ends between the read and the write."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '1ms'")
        stock = read_stock(attempt)
        database_socket = connection.connection.pgconn.socket
        # The socket is readable once the database has closed the connection.
        readable_sockets, _, _ = select([database_socket], [], [], TIMEOUT_SECONDS)
        assert readable_sockets, "the database should have closed the connection"
        return sell_one(attempt, read=lambda attempt: stock)


def time_out_at_the_first_attempt(attempt: Attempt) -> Receipt:
    """Fail by a timeout at the first attempt of each buyer, and sell at later attempts."""
    if attempt.buyer in buyers_timed_out:
        return sell_without_a_timeout(attempt)
    buyers_timed_out.add(attempt.buyer)
    return sell_in_a_timed_out_transaction(attempt)


def retry_inside_the_strategy(attempt: Attempt) -> Receipt:
    """Fail by a timeout, catch the error, and sell.

    The caller does not see the error. A strategy that a participant of the workshop writes may
    behave like this.
    """
    try:
        return sell_in_a_timed_out_transaction(attempt)
    except DatabaseError:
        connection.close()
        return sell_without_a_timeout(attempt)


@pytest.mark.parametrize("buy", [time_out_at_the_first_attempt, retry_inside_the_strategy])
def test_schedule_raises_if_a_transaction_timed_out(
    buy: Callable[[Attempt], Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database ends the transaction of a stopped buyer, and a second attempt then sells.

    The moves of the second attempt are not in the order of the schedule, so run_schedule() raises
    TimedOut instead of returning an outcome.
    """
    buyers_timed_out.clear()
    monkeypatch.setitem(STRATEGIES, "none", replace(STRATEGIES["none"], buy=buy))
    with pytest.raises(TimedOut, match="the database ended a transaction"):
        run_schedule("none", "AAABBB", units=1)


def test_schedule_raises_if_a_connection_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken connection counts as a timeout, because PostgreSQL's error message may be lost.

    Here the connection breaks without a message, and run_schedule() raises TimedOut.
    """

    def break_the_connection_then_sell(attempt: Attempt) -> Receipt:
        try:
            with transaction.atomic():
                stock = read_stock(attempt)
                shut_down(connection.connection.pgconn.socket)
                return sell_one(attempt, read=lambda attempt: stock)
        except DatabaseError:
            connection.close()
            return sell_without_a_timeout(attempt)

    monkeypatch.setitem(
        STRATEGIES, "none", replace(STRATEGIES["none"], buy=break_the_connection_then_sell)
    )
    with pytest.raises(TimedOut, match="the database ended a transaction"):
        run_schedule("none", "AAABBB", units=1)


def shut_down(descriptor: int) -> None:
    """Shut down the socket with this file descriptor in both directions, but do not close it."""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
