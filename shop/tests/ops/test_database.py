"""Database settings from DATABASE_URL, and how the shop classifies the errors of each database."""

import sqlite3
import sys

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError

from shop.ops.database import (
    get_error_code,
    is_busy_error,
    is_conflict_error,
    is_connection_lost,
    make_database_settings,
)


def make_error(cause: Exception) -> OperationalError:
    """Return an error as Django raises it: its cause is this error of a database driver."""
    error = OperationalError()
    error.__cause__ = cause
    return error


def test_postgresql_errors_are_classified_by_sqlstate() -> None:
    """40001 is a conflict, so the transaction may be tried again.

    An error without a code, a shutdown and a read-only server count as a lost connection.
    """
    conflict = make_error(psycopg.errors.lookup("40001")())  # serialization_failure
    assert get_error_code(conflict) == "40001"
    assert is_conflict_error(conflict)
    assert not is_busy_error(conflict)
    # psycopg's error has no code if no server answers.
    assert is_connection_lost(make_error(psycopg.OperationalError()))
    assert is_connection_lost(make_error(psycopg.errors.lookup("57P01")()))  # admin_shutdown
    assert is_connection_lost(make_error(psycopg.errors.lookup("25006")()))  # read_only


@pytest.mark.parametrize(
    ("number", "conflict", "busy", "lost"),
    [
        (1213, True, True, False),  # deadlock
        (1020, True, True, False),  # MariaDB: the row has changed since the snapshot
        (1205, False, True, False),  # timeout of a lock
        (2013, False, False, True),  # lost connection
        (1927, False, False, True),  # MariaDB: killed connection
        (1290, False, False, True),  # --read-only
        (1836, False, False, True),  # read-only mode
        (1064, False, False, False),  # syntax error
        (0, False, False, True),  # PyMySQL: the connection is closed
    ],
)
def test_mysql_errors_are_classified_by_number(
    number: int, conflict: bool, busy: bool, lost: bool
) -> None:
    """An error may be a conflict (the transaction may be tried again), busy, or a lost connection.

    number  the code of an error of MySQL, MariaDB or PyMySQL
    """
    pymysql = pytest.importorskip("pymysql")
    error = make_error(pymysql.err.OperationalError(number, "a message"))
    assert is_conflict_error(error) == conflict
    assert is_busy_error(error) == busy
    assert is_connection_lost(error) == lost


def test_busy_sqlite_is_busy_but_not_lost() -> None:
    """A locked SQLite file counts as busy. The connection can still be used."""
    cause = sqlite3.OperationalError("database is locked")
    cause.sqlite_errorname = "SQLITE_BUSY"
    assert is_busy_error(make_error(cause))
    assert not is_connection_lost(make_error(cause))


def test_sqlite_without_writes_is_unavailable() -> None:
    """A read-only database counts as a lost connection, which the shop answers with 503."""
    cause = sqlite3.OperationalError("attempt to write a readonly database")
    cause.sqlite_errorname = "SQLITE_READONLY"
    assert is_connection_lost(make_error(cause))


def test_mysql_url_gives_settings() -> None:
    """The login and the parameters of a MySQL URL become Django's settings.

    On a Unix socket TLS is left out, even if the URL has a password.
    """
    pytest.importorskip("pymysql")
    settings = make_database_settings(
        "mysql://ann:p%40ss@localhost/shop?isolation_level=repeatable-read&snapshot=on"
        "&unix_socket=/x",
        pool_size=20,
        is_pgbouncer=False,
    )
    assert (settings["USER"], settings["PASSWORD"], settings["NAME"]) == ("ann", "p@ss", "shop")
    assert settings["OPTIONS"]["isolation_level"] == "repeatable read"
    assert settings["OPTIONS"]["ssl_disabled"] is True
    assert "innodb_snapshot_isolation=ON" in settings["OPTIONS"]["init_command"]


@pytest.mark.parametrize(
    ("login", "is_disabled"),
    [("ann@db.example.com", False), ("ann@127.0.0.1", True), ("ann:secret@127.0.0.1", False)],
)
def test_tls_is_left_out_on_this_machine_without_a_password(login: str, is_disabled: bool) -> None:
    """A connection to MySQL on this machine uses TLS only if the URL has a password.

    Without TLS, PyMySQL would need the package cryptography to send a password over TCP.
    """
    pytest.importorskip("pymysql")
    settings = make_database_settings(f"mysql://{login}/shop", pool_size=20, is_pgbouncer=False)
    assert settings["OPTIONS"].get("ssl_disabled", False) == is_disabled


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ann@localhost/shop?level=1",
        "mysql://ann@localhost/shop?snapshot=1,sql_mode=2",
        "mysql://ann@localhost/shop?isolation_level=strict",
        "sqlite:////x?mode=rw",
    ],
)
def test_unknown_parameter_or_value_is_refused(url: str) -> None:
    """A URL with a parameter or a value that the shop does not know is an error."""
    if url.startswith("mysql"):
        pytest.importorskip("pymysql")
    with pytest.raises(ImproperlyConfigured):
        make_database_settings(url, pool_size=20, is_pgbouncer=False)


def test_missing_mysql_client_error_names_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(ImproperlyConfigured, match="make install-mysql"):
        make_database_settings("mysql://ann@localhost/shop", pool_size=20, is_pgbouncer=False)
