"""The databases that the shop runs on: their settings by URL, and the codes of their errors.

In production it is PostgreSQL. In a demo DATABASE_URL may name another database, to compare how the
strategies behave there:

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
#: Hosts of a server on this machine. Without a host, the driver connects to this machine, too.
LOOPBACK_HOSTS = ("", "localhost", "127.0.0.1", "::1")
#: Parameter of a mysql:// URL -> its allowed values. An empty tuple allows any value.
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

#: Codes that mean: another transaction changed the same rows, and this one was rolled back. Codes
#: of a lost connection are not included, because the transaction may have been committed.
CONFLICT_CODES = {
    "40001",  # PostgreSQL: serialization_failure
    "40P01",  # PostgreSQL: deadlock_detected
    "1213",  # MySQL: deadlock
    "1020",  # MariaDB: the row has changed since the snapshot
}
#: Codes that mean: the database waited for too long or refused to wait, and wrote nothing. The
#: buyer may retry. MySQL's conflicts are included for strategies that do not retry them.
BUSY_CODES = {
    "55P03",  # PostgreSQL: lock_not_available
    "57014",  # PostgreSQL: query_canceled, by statement_timeout
    "25P03",  # PostgreSQL: idle in a transaction for too long
    "1205",  # MySQL: timeout of a lock
    "1969",  # MariaDB: timeout of a statement
    "3024",  # MySQL: timeout of a statement
    "1213",  # MySQL: deadlock
    "1020",  # MariaDB: the row has changed since the snapshot
    "SQLITE_BUSY",  # another writer has the database
    "SQLITE_BUSY_SNAPSHOT",  # another writer has changed what was read
}
#: MySQL's codes of a connection that is lost, or cannot be made.
MYSQL_GONE_CODES = {
    "1040",  # too many connections
    "1053",  # the server shuts down
    "1152",  # connection aborted
    "1184",  # new connection aborted
    "1317",  # the statement was killed
    "1927",  # MariaDB: the connection was killed
    "2002",  # no server at the Unix socket
    "2003",  # no server at the address
    "2006",  # the server has closed the connection
    "2013",  # the connection was lost during a statement
    "2055",  # the same, with the error of the system
}
#: Codes of a write to a database that accepts none.
READ_ONLY_CODES = {
    "25006",  # PostgreSQL: a standby, or default_transaction_read_only
    "1290",  # MySQL: the server runs with --read-only
    "1792",  # MySQL: the transaction is read-only
    "1836",  # MySQL: the server is in read-only mode
    "SQLITE_READONLY",  # the file is read-only
}
#: Codes that mean: a row with this unique value exists. PostgreSQL, MySQL, SQLite.
DUPLICATE_CODES = {"23505", "1062", "SQLITE_CONSTRAINT_UNIQUE"}


def read_database_software() -> str:
    """Return the name of the database's software, even if the server does not answer."""
    if connection.vendor not in ("mysql", "sqlite"):
        return "PostgreSQL"
    try:
        return str(connection.display_name)  # may ask the server whether it is MariaDB or MySQL
    except (DatabaseError, InterfaceError):
        return "MySQL or MariaDB"


def get_error_code(error: BaseException) -> str | None:
    """Return the database's code for an error of Django, or None if no server has answered.

    PostgreSQL's code is the SQLSTATE, MySQL's a number, SQLite's a name.
    """
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        # An error that the Python module raises itself has no `sqlite_errorname`.
        return getattr(cause, "sqlite_errorname", None) or "SQLITE_ERROR"
    # Compare the name of the error's module, because PyMySQL may not be installed.
    if type(cause).__module__.partition(".")[0] in ("pymysql", "MySQLdb"):
        # PyMySQL gives the number 0 if the connection is closed.
        number = cause.args[0] if cause is not None and cause.args else 0
        return str(number) if number else None
    return getattr(cause, "sqlstate", None)


def is_conflict_error(error: BaseException) -> bool:
    """Return whether another transaction changed the same rows, so that this one may be retried."""
    return get_error_code(error) in CONFLICT_CODES


def is_busy_error(error: BaseException) -> bool:
    """Return whether the database gave up waiting, and wrote nothing."""
    return get_error_code(error) in BUSY_CODES


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the connection that raised this error cannot be used for later purchases.

    Either the connection is lost, or its server accepts no writes. An error without a code means
    that the server did not answer. PostgreSQL's codes have five characters. The codes of a lost
    connection begin with 08 (connection), 53 (resources) or 57P (shutdown).
    """
    code = get_error_code(error)
    if code is None or code in MYSQL_GONE_CODES or code in READ_ONLY_CODES:
        return True
    return len(code) == 5 and code.startswith(("08", "53", "57P"))


def is_violation_of(constraint: str, error: BaseException) -> bool:
    """Return whether the error is a duplicate value under this unique constraint.

    constraint  a part of the constraint's name; MySQL and SQLite name it only in the message
    """
    if get_error_code(error) not in DUPLICATE_CODES:
        return False
    diagnosis = getattr(error.__cause__, "diag", None)
    if diagnosis is not None:
        return constraint in (diagnosis.constraint_name or "")
    return constraint in str(error)


def make_database_settings(url: str, *, pool_size: int, is_pgbouncer: bool) -> dict[str, Any]:
    """Return Django's settings for the database of a URL.

    `pool_size` and `is_pgbouncer` apply only to PostgreSQL; see make_postgresql_settings(). Raises
    ImproperlyConfigured for a wrong URL.
    """
    match urlsplit(url).scheme:
        case "mysql":
            return _make_mysql_settings(url)
        case "sqlite":
            return _make_sqlite_settings(url)
    return postgres.make_postgresql_settings(
        Env.db_url_config(url), pool_size=pool_size, is_pgbouncer=is_pgbouncer
    )


def _make_mysql_settings(url: str) -> dict[str, Any]:
    """Return the settings of a mysql:// URL. Raises ImproperlyConfigured."""
    try:
        import pymysql
    except ImportError as error:
        raise ImproperlyConfigured(
            "DATABASE_URL=mysql://... needs PyMySQL, which is not installed: make install-mysql"
        ) from error
    pymysql.install_as_MySQLdb()
    address = urlsplit(url)
    parameters = _parse_mysql_parameters(address.query)
    session_variables = [f"innodb_lock_wait_timeout={LOCK_TIMEOUT_SECONDS}"]
    if "snapshot" in parameters:  # MariaDB 10.6.18 and later
        session_variables.append(f"innodb_snapshot_isolation={parameters['snapshot'].upper()}")
    # A column is named `lock`, a reserved word. With ANSI_QUOTES it can be quoted in SQL as "lock",
    # as on other databases.
    session_variables.append("sql_mode=concat(@@sql_mode, ',ANSI_QUOTES')")
    options: dict[str, Any] = {
        "charset": parameters.get("charset", "utf8mb4"),
        "isolation_level": parameters.get("isolation_level", "read-committed").replace("-", " "),
        "connect_timeout": 3,
        "read_timeout": postgres.REPLY_TIMEOUT_SECONDS,
        "write_timeout": postgres.REPLY_TIMEOUT_SECONDS,
        "init_command": f"SET {', '.join(session_variables)}",
    }
    host = address.hostname or ""
    if "unix_socket" in parameters:
        options["unix_socket"] = parameters["unix_socket"]
    has_tcp_password = bool(address.password) and "unix_socket" not in parameters
    if host in LOOPBACK_HOSTS and not has_tcp_password:
        # A connection inside this machine needs no TLS. With a password over TCP, TLS stays on,
        # because PyMySQL would otherwise need the package cryptography.
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


def _parse_mysql_parameters(query: str) -> dict[str, str]:
    """Return the parameters of a mysql:// URL. Raises ImproperlyConfigured if one is wrong."""
    parameters = dict(parse_qsl(query))
    for name, text in parameters.items():
        if name not in MYSQL_PARAMETERS:
            names = ", ".join(sorted(MYSQL_PARAMETERS))
            raise ImproperlyConfigured(f"DATABASE_URL has the parameter {name!r}: use {names}")
        allowed = MYSQL_PARAMETERS[name]
        if allowed and text not in allowed:
            raise ImproperlyConfigured(f"DATABASE_URL has {name}={text}: use {', '.join(allowed)}")
    return parameters


def _make_sqlite_settings(url: str) -> dict[str, Any]:
    """Return the settings of a sqlite:/// URL. Raises ImproperlyConfigured."""
    address = urlsplit(url)
    parameters = dict(parse_qsl(address.query))
    mode = parameters.pop("transaction_mode", "IMMEDIATE").upper()
    if parameters or mode not in ("IMMEDIATE", "DEFERRED", "EXCLUSIVE"):
        raise ImproperlyConfigured(
            f"DATABASE_URL has {address.query!r}: a sqlite:/// URL takes only "
            "transaction_mode=IMMEDIATE, DEFERRED or EXCLUSIVE"
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
