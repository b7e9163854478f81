"""Two ways to read the orders and the stock of a shop: over HTTP, or from its database."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import psycopg

from loadtest.stack import mysql_client
from loadtest.stack.client import ShopUnreachable, send
from loadtest.target.target import EXCERPT_LENGTH, TargetError
from servers import mariadb

#: How long ask() and sql() wait for an answer.
TIMEOUT_SECONDS = 30.0


def ask(
    url: str,
    *,
    method: str = "GET",
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Send a request, with `body` as JSON. Return the JSON of the answer; None for an empty answer.

    Raises TargetError if there is no answer, a status of 400 or above, or an answer without JSON.
    """
    try:
        all_headers = {"Accept": "application/json", **(headers or {})}
        status, answer = send(method, url, body, all_headers, TIMEOUT_SECONDS)
    except ShopUnreachable as error:
        raise TargetError(
            f"no shop answers at {url} ({error}): start it, or give another address with --host"
        ) from error
    text = answer.decode(errors="replace")
    if status >= 400:
        raise TargetError(f"{method} {url} was answered {status}: {text[:EXCERPT_LENGTH]}")
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise TargetError(
            f"the answer to {method} {url} is not JSON: {text[:EXCERPT_LENGTH]!r}. Use an address "
            "that answers with JSON, or count the orders in the database with sql()"
        ) from error


def sql(dsn: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a query, commit it, and return its rows; an empty list if it returns none.

    dsn    postgresql://user:password@host/database, sqlite:///path/to/file, or
           mysql://user:password@host/database (also MariaDB; ?unix_socket=/path)
    query  SQL with a placeholder for each value: %s (PostgreSQL, MySQL) or ? (SQLite)

    Raises TargetError with the message of the database.
    """
    try:
        if dsn.startswith("sqlite:///"):
            file = dsn.removeprefix("sqlite:///")
            # With mode=rw a wrong path is an error. By default sqlite3 would create a database.
            uri = f"file:{quote(file)}?mode=rw"
            sqlite = sqlite3.connect(uri, uri=True, timeout=TIMEOUT_SECONDS)
            with closing(sqlite), sqlite:  # `sqlite` commits at the end of the block
                return sqlite.execute(query, values).fetchall()
        if dsn.startswith(("postgresql://", "postgres://")):
            with psycopg.connect(dsn, connect_timeout=int(TIMEOUT_SECONDS)) as connection:
                cursor = connection.execute(query, values or None)
                return cursor.fetchall() if cursor.description else []
        if dsn.startswith("mysql://"):
            return _query_mysql(dsn, query, values)
    except (psycopg.Error, sqlite3.Error) as error:
        raise TargetError(
            f"a query of the database failed: {str(error).strip()}. Query: {query}"
        ) from error
    raise TargetError(
        f"sql() cannot read a database at {dsn.partition(':')[0]}: give a URL that begins with "
        "postgresql://, mysql:// or sqlite:///, or count the orders with the database's own driver"
    )


def _query_mysql(dsn: str, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Run a query on MySQL or MariaDB, commit it and return its rows. Raises TargetError."""
    try:
        import pymysql
    except ImportError as error:
        raise TargetError(
            f"counting the orders of a shop on MySQL needs PyMySQL. {mariadb.CLIENT_MISSING}"
        ) from error
    try:
        with (
            closing(mysql_client.connect(dsn, timeout_seconds=TIMEOUT_SECONDS)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(query, values or None)
            return list(cursor.fetchall())
    except (pymysql.MySQLError, ValueError) as error:  # ValueError: a wrong port in the URL
        raise TargetError(f"a query of the database failed: {error}. Query: {query}") from error
