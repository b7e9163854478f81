"""The points at which `interleave` stops a call, so that another call may take its turn.

A call stops before a SQL statement, COMMIT or ROLLBACK, before certain functions, and at a step().
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from django.db.backends.signals import connection_created
from django.utils.module_loading import import_string

#: A function that stops the calling thread before a step; its argument is the text of the step.
Stop = Callable[[str], None]
#: The name in `at` for the points before each SQL statement, COMMIT and ROLLBACK.
SQL = "sql"
#: Statements that neither read nor write rows, so that no race needs a stop before them.
_IGNORED_STATEMENTS = ("SAVEPOINT", "RELEASE SAVEPOINT", "SET ", "SHOW ", "BEGIN")
#: Maximum number of characters of a statement in the timeline.
MAX_STATEMENT_CHARACTERS = 56

#: The function that stops the calls of the running interleaving, if there is one.
_current_stop: Stop | None = None


def step(name: str) -> None:
    """Mark a point at which a call may lose its turn. Has no effect outside `interleave`.

    Args:
        name: The name of the point in the timeline.
    """
    if _current_stop is not None:
        _current_stop(name)


@contextmanager
def install_points(
    stop: Stop, at: Sequence[str], on_connected: Callable[[int], None]
) -> Iterator[None]:
    """Until the block ends, call `stop` in every thread that reaches one of the points in `at`.

    The thread that enters the block is never stopped before a statement.

    Args:
        stop: Called in the thread that is about to make a step, with the text of the step.
        at: `sql`, and dotted names of functions such as `shop.payment.charge`.
        on_connected: Called in a thread that has opened a connection to PostgreSQL, MySQL or
            MariaDB, with the id of the connection's process or thread in the database.

    Yields:
        None.
    """
    global _current_stop
    with ExitStack() as undo:
        for name in at:
            if name == SQL:
                undo.enter_context(_stop_before_statements(stop, on_connected))
            else:
                undo.enter_context(_stop_before_function(stop, name))
        _current_stop = stop
        try:
            yield
        finally:
            _current_stop = None


def _stop_before_function(stop: Stop, dotted_name: str) -> AbstractContextManager[object]:
    """Until the block ends, call `stop` before each call of the function with this dotted name."""
    function = import_string(dotted_name)
    name = dotted_name.rpartition(".")[2]

    @wraps(function)
    def stop_and_call(*args: Any, **kwargs: Any) -> Any:
        stop(f"{name}()")
        return function(*args, **kwargs)

    return patch(dotted_name, stop_and_call)


@contextmanager
def _stop_before_statements(stop: Stop, on_connected: Callable[[int], None]) -> Iterator[None]:
    """Until the block ends, call `stop` before statements, COMMITs and ROLLBACKs.

    Connections of the thread that enters the block are not affected, nor those that were opened
    before. `on_connected` is called with the id that the database gives to a new connection.
    """
    test_thread = threading.current_thread()

    def stop_and_execute(
        execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        text = read_statement(sql, context["cursor"].cursor)
        if not text.lstrip().upper().startswith(_IGNORED_STATEMENTS):
            if many:
                params = list(params)  # an iterator could be read only once
            stop(shorten_statement(text, params, many=many))
        return execute(sql, params, many, context)

    def with_stop(text: str, end_transaction: Callable[[], None]) -> Callable[[], None]:
        def stop_and_end() -> None:
            stop(text)
            end_transaction()

        return stop_and_end

    def add_stops(connection: Any, **_: Any) -> None:
        if threading.current_thread() is test_thread:
            return
        # A connection that was closed and opened again keeps its stops, but has a new id.
        if stop_and_execute not in connection.execute_wrappers:
            connection.execute_wrappers.append(stop_and_execute)
            connection.commit = with_stop("COMMIT", connection.commit)
            connection.rollback = with_stop("ROLLBACK", connection.rollback)
        if connection.vendor == "postgresql":
            on_connected(connection.connection.info.backend_pid)
        elif connection.vendor == "mysql":
            on_connected(connection.connection.thread_id())

    connection_created.connect(add_stops)
    try:
        yield
    finally:
        connection_created.disconnect(add_stops)


def read_statement(statement: Any, cursor: Any) -> str:
    """Return the text of a statement of any type that a database driver takes.

    Args:
        statement: A string, bytes, or an object of psycopg.sql.
        cursor: The cursor of the database driver, which knows how to quote names.
    """
    if isinstance(statement, bytes):
        return statement.decode(errors="replace")
    if hasattr(statement, "as_string"):
        return str(statement.as_string(cursor))
    return str(statement)


def shorten_statement(sql: str, params: Any = None, *, many: bool = False) -> str:
    """Return a statement in a short form, such as `SELECT stock WHERE id = 1`.

    Args:
        sql: The statement with its placeholders.
        params: The values of the placeholders; a list of rows if `many` is true.
        many: Whether the statement is run by `executemany`, with several rows.

    Returns:
        The statement with its values, and without the columns of a SELECT or INSERT, in at most
        MAX_STATEMENT_CHARACTERS. For `executemany`, it has the values of the first row and the
        number of further rows.
    """
    text = " ".join(sql.split()).replace('"', "").replace("`", "")
    text = re.sub(r"^SELECT .*? FROM ", "SELECT ", text)
    text = re.sub(r"^INSERT INTO (\S+) \(.*?\) VALUES", r"INSERT \1", text)
    text = re.sub(r" (ORDER BY|LIMIT|RETURNING) .*?(?= FOR UPDATE|$)", "", text)
    table_match = re.search(r"^(?:SELECT|INSERT|UPDATE|DELETE FROM) (\w+)", text)
    if table_match:
        text = text.replace(f"{table_match[1]}.", "")
    rows = params if many else [params]
    text = _fill_placeholders(text, rows[0] if rows else None)
    suffix = ""
    if len(rows) > 1:
        suffix = f" (and {len(rows) - 1} more)"
    max_characters = MAX_STATEMENT_CHARACTERS - len(suffix)
    if len(text) > max_characters:
        text = text[: max_characters - 3] + "..."
    return text + suffix


def _fill_placeholders(text: str, params: Any) -> str:
    """Return the statement with the values in place of the placeholders, and `%` for `%%`.

    If the values are in a mapping, the placeholders stay.
    """
    values = list(params) if isinstance(params, (list, tuple)) else []

    def fill(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if not values:
            return match[0]
        value = values.pop(0)
        if isinstance(value, int):
            return int.__repr__(value)  # psycopg's subclasses of int have a repr such as Int4(1)
        return repr(value)

    return re.sub("%%|%s", fill, text)
