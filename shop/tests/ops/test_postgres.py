"""The client's own limits on connections to PostgreSQL."""

import os

import psycopg.errors
import pytest

from shop.ops.postgres import BoundedConnection, ReplyTimeout, is_wait_timeout


def test_psycopg_still_has_its_private_wait_timeout() -> None:
    """The shop recognizes this private exception of psycopg by its name.

    If psycopg renamed it, a lost reply would no longer be a ReplyTimeout.
    """
    assert hasattr(psycopg.errors, "_WaitTimeout"), "psycopg renamed _WaitTimeout: see ops/postgres"
    assert is_wait_timeout(psycopg.errors._WaitTimeout())
    assert not is_wait_timeout(psycopg.OperationalError())


def test_connection_without_a_reply_is_closed() -> None:
    with BoundedConnection.connect(os.environ["DATABASE_URL"]) as connection:
        connection.reply_timeout = 0.2
        with pytest.raises(ReplyTimeout, match=r"no reply within 0\.2 s"):
            connection.execute("SELECT pg_sleep(30)")
        assert connection.closed
