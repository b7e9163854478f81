"""The databases that the shop runs on: their settings by URL, and the codes of their errors.

Production is PostgreSQL. In a demo DATABASE_URL may lead to another database, to compare what
guards the stock there:

    mysql://user:password@host:port/name?isolation_level=repeatable-read&snapshot=on&unix_socket=/path
    sqlite:////absolute/path?transaction_mode=DEFERRED

MariaDB is `mysql` everywhere, as in Django.
"""

import sqlite3
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, connection
from environ import Env

from shop.ops import postgres

#: Seconds for which a statement waits for a lock.
LOCK_TIMEOUT_SECONDS = postgres.TIMEOUTS_MS["lock_timeout"] // 1000
LOOPBACK = ("", "localhost", "127.0.0.1", "::1")
#: Parameters of a mysql:// URL -> the values that they may have; none listed: any.
MYSQL_PARAMETERS: dict[str, tuple[str, ...]] = {
    "isolation_level": (
        "read-uncommitted",
        "read-committed",
        "repeatable-read",
        "serializable",
    ),
    "snapshot": ("on", "off"),
    "unix_socket": (),
    "charset": (),
}

#: Another transaction was first, and this one is rolled back.
#: PostgreSQL: serialization_failure, deadlock_detected. MySQL: deadlock; MariaDB: the row has
#: changed since the snapshot. A lost connection is not among them, because it may have committed.
CONFLICTS = {"40001", "40P01", "1213", "1020"}
#: The buyer may ask again: the database waited for too long or refused to wait, and wrote nothing.
#: PostgreSQL: lock_not_available, query_canceled (statement_timeout), idle in transaction. MySQL:
#: lock wait, statement, and its conflicts, which end strategies that never retry. SQLite: the
#: writer was not let in.
BUSY = {
    # PostgreSQL
    "55P03",
    "57014",
    "25P03",
    # MySQL and MariaDB
    "1205",
    "1969",
    "3024",
    "1213",
    "1020",
    # SQLite
    "SQLITE_BUSY",
    "SQLITE_BUSY_SNAPSHOT",
}
#: The connection is lost. MySQL: no connection, no room, shutdown, killed.
MYSQL_GONE = {
    "1040",
    "1053",
    "1152",
    "1184",
    "1317",
    "1927",
    "2002",
    "2003",
    "2006",
    "2013",
    "2055",
}
#: A row with this unique value exists. PostgreSQL, MySQL, SQLite.
DUPLICATES = {"23505", "1062", "SQLITE_CONSTRAINT_UNIQUE"}


def database_name() -> str:
    """Return the name of the shop's database, also while its server does not answer.

    Only the server tells MariaDB from MySQL: Django asks it once for each connection.
    """
    if connection.vendor not in ("mysql", "sqlite"):
        return "PostgreSQL"
    try:
        return str(connection.display_name)
    except (DatabaseError, InterfaceError):
        return "MySQL or MariaDB"


def code_of(error: BaseException) -> str | None:
    """Return the database's own code of an error of Django; None if no server has answered.

    PostgreSQL's is the SQLSTATE, MySQL's a number, SQLite's a name.
    """
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorname", None) or "SQLITE_ERROR"
    if type(cause).__module__.partition(".")[0] in ("pymysql", "MySQLdb"):
        number = cause.args[0] if cause is not None and cause.args else 0
        return str(number) if number else None
    return getattr(cause, "sqlstate", None)


def is_conflict(error: BaseException) -> bool:
    """Return whether another transaction was first, so that this one may begin anew."""
    return code_of(error) in CONFLICTS


def is_busy(error: BaseException) -> bool:
    """Return whether the database refused to go on, and wrote nothing."""
    return code_of(error) in BUSY


def is_lost(error: BaseException) -> bool:
    """Return whether this error means that the connection is lost.

    No code: the server did not answer. In PostgreSQL 08: connection; 53: no room; 57P: shutdown.
    """
    code = code_of(error)
    if code is None or code in MYSQL_GONE:
        return True
    return len(code) == 5 and code.startswith(("08", "53", "57P"))


def violates(error: BaseException, constraint: str) -> bool:
    """Return whether the error is a duplicate value under this unique constraint.

    constraint  a part of its name; MySQL and SQLite name it in their messages only
    """
    if code_of(error) not in DUPLICATES:
        return False
    diagnosis = getattr(error.__cause__, "diag", None)
    if diagnosis is not None:
        return constraint in (diagnosis.constraint_name or "")
    return constraint in str(error)


def database_settings(url: str, *, pool_size: int, is_pgbouncer: bool) -> dict[str, Any]:
    """Return Django's settings of the database of a URL.

    The other parameters apply to PostgreSQL alone; see postgres.database_settings. Raises
    ImproperlyConfigured, with what to do.
    """
    match urlsplit(url).scheme:
        case "mysql":
            return _mysql(url)
        case "sqlite":
            return _sqlite(url)
    return postgres.database_settings(
        Env.db_url_config(url), pool_size=pool_size, is_pgbouncer=is_pgbouncer
    )


def _mysql(url: str) -> dict[str, Any]:
    try:
        import pymysql
    except ImportError as error:
        raise ImproperlyConfigured(
            "DATABASE_URL=mysql://... needs PyMySQL, which is not installed: make install-mysql"
        ) from error
    pymysql.install_as_MySQLdb()
    address = urlsplit(url)
    parameters = dict(parse_qsl(address.query))
    if unknown := sorted(parameters.keys() - MYSQL_PARAMETERS):
        names = ", ".join(sorted(MYSQL_PARAMETERS))
        raise ImproperlyConfigured(f"DATABASE_URL has the parameter {unknown[0]!r}: use {names}")
    for name, text in parameters.items():
        allowed = MYSQL_PARAMETERS[name]
        if allowed and text not in allowed:
            raise ImproperlyConfigured(f"DATABASE_URL has {name}={text}: use {', '.join(allowed)}")
    set_variables = [f"innodb_lock_wait_timeout={LOCK_TIMEOUT_SECONDS}"]
    if "snapshot" in parameters:  # MariaDB 10.6.18 and later
        set_variables.append(f"innodb_snapshot_isolation={parameters['snapshot'].upper()}")
    # A column has the name `lock`, which is a reserved word: quoted as in every other database.
    set_variables.append("sql_mode=concat(@@sql_mode, ',ANSI_QUOTES')")
    options: dict[str, Any] = {
        "charset": parameters.get("charset", "utf8mb4"),
        "isolation_level": parameters.get("isolation_level", "read-committed").replace("-", " "),
        "connect_timeout": 3,
        "read_timeout": postgres.REPLY_TIMEOUT_SECONDS,
        "write_timeout": postgres.REPLY_TIMEOUT_SECONDS,
        "init_command": f"SET {', '.join(set_variables)}",
    }
    host = address.hostname or ""
    if "unix_socket" in parameters:
        options["unix_socket"] = parameters["unix_socket"]
    has_tcp_password = bool(address.password) and "unix_socket" not in parameters
    if host in LOOPBACK and not has_tcp_password:
        # Each connection would make a TLS context, which takes 24 ms of processor time. MySQL takes
        # a password over TCP only with TLS, or encrypted by the package cryptography.
        options["ssl_disabled"] = True
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": unquote(address.path.lstrip("/")),
        "USER": unquote(address.username or ""),
        "PASSWORD": unquote(address.password or ""),
        "HOST": host,
        "PORT": address.port or "",
        "CONN_MAX_AGE": None,
        "OPTIONS": options,
    }


def _sqlite(url: str) -> dict[str, Any]:
    address = urlsplit(url)
    parameters = dict(parse_qsl(address.query))
    mode = parameters.pop("transaction_mode", "IMMEDIATE").upper()
    if parameters or mode not in ("IMMEDIATE", "DEFERRED", "EXCLUSIVE"):
        raise ImproperlyConfigured(
            "a sqlite:/// URL takes transaction_mode=IMMEDIATE, DEFERRED or EXCLUSIVE"
        )
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": unquote(address.path.removeprefix("/")),
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "transaction_mode": mode,
            "timeout": LOCK_TIMEOUT_SECONDS,
            "init_command": "PRAGMA journal_mode=WAL",
        },
    }
