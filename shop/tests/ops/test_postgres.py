"""The reply timeout of the shop's PostgreSQL client: it closes a connection without a reply."""

import os

import psycopg.errors
import pytest

from shop.ops.postgres import BoundedConnection, ReplyTimeout, is_wait_timeout


def test_psycopg_still_has_its_private_wait_timeout() -> None:
    """psycopg has an exception of the name `_WaitTimeout`.

    It is private in psycopg, so the shop recognizes it by its name. If psycopg renamed it, a
    missing reply would no longer raise ReplyTimeout.
    """
    assert hasattr(psycopg.errors, "_WaitTimeout"), "psycopg renamed _WaitTimeout: see ops/postgres"
    assert is_wait_timeout(psycopg.errors._WaitTimeout())
    assert not is_wait_timeout(psycopg.OperationalError())


def test_connection_without_a_reply_is_closed() -> None:
    """A statement that takes longer than the reply timeout raises ReplyTimeout.

    The connection is then closed.
    """
    with BoundedConnection.connect(os.environ["DATABASE_URL"]) as connection:
        connection.reply_timeout = 0.2
        with pytest.raises(ReplyTimeout, match=r"no reply within 0\.2 s"):
            connection.execute("SELECT pg_sleep(30)")
        assert connection.closed
