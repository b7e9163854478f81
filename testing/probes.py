"""Where a call stops: before a statement, a COMMIT, a ROLLBACK or a function, and at a `step`."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from django.db.backends.signals import connection_created
from django.utils.module_loading import import_string

#: Stops a thread before a step: called in that thread, with the step's text.
Stop = Callable[[str], None]
#: As one of `at`: before each SQL statement, each COMMIT and each ROLLBACK.
SQL = "sql"
#: Statements that only mark a place in a transaction: nothing of others can come between.
_MARKS = ("SAVEPOINT", "RELEASE SAVEPOINT", "SET ", "SHOW ", "BEGIN")

#: Characters that one column of the timeline holds.
WIDTH = 56

_here: Stop | None = None


def step(name: str) -> None:
    """A named point of your own, in a callable of the test. Does nothing outside `interleave`."""
    if _here is not None:
        _here(name)


@contextmanager
def installed(stop: Stop, at: Sequence[str], connected: Callable[[int], None]) -> Iterator[None]:
    """Inside the block every thread stops at these points.

    at         "sql", and dotted names of functions, as in "shop.payment.charge"
    connected  called in a thread that has opened a connection, with its process id in the database
    """
    global _here
    with ExitStack() as undo:
        for name in at:
            undo.enter_context(_sql(stop, connected) if name == SQL else _function(stop, name))
        _here = stop
        try:
            yield
        finally:
            _here = None


def _function(stop: Stop, dotted: str) -> AbstractContextManager[object]:
    """Stop before each call of the function that has this name in this module."""
    original = import_string(dotted)

    @wraps(original)
    def stopping(*args: Any, **kwargs: Any) -> Any:
        stop(f"{dotted.rpartition('.')[2]}()")
        return original(*args, **kwargs)

    return patch(dotted, stopping)


@contextmanager
def _sql(stop: Stop, connected: Callable[[int], None]) -> Iterator[None]:
    """Stop before each statement on a connection that is opened inside the block."""
    ours = threading.current_thread()

    def before(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.lstrip().upper().startswith(_MARKS):
            params = list(params) if many else params
            stop(short(sql, params, many=many))
        return execute(sql, params, many, context)

    def stopping(what: str, end: Callable[[], None]) -> Callable[[], None]:
        def stops_and_ends() -> None:
            stop(what)
            end()

        return stops_and_ends

    def watch(connection: Any, **_: Any) -> None:
        if threading.current_thread() is ours or before in connection.execute_wrappers:
            return
        connection.execute_wrappers.append(before)
        connection.commit = stopping("COMMIT", connection.commit)
        connection.rollback = stopping("ROLLBACK", connection.rollback)
        if connection.vendor == "postgresql":
            connected(connection.connection.info.backend_pid)

    connection_created.connect(watch)
    try:
        yield
    finally:
        connection_created.disconnect(watch)


def short(sql: str, params: Any = None, *, many: bool = False) -> str:
    """`SELECT stock WHERE id = 1`: its columns left out, its values put in, cut at WIDTH. Of
    executemany the values of the first row, and how many more there are."""
    text = " ".join(sql.split()).replace('"', "").replace("`", "")
    text = re.sub(r"^SELECT .*? FROM ", "SELECT ", text)
    text = re.sub(r"^INSERT INTO (\S+) \(.*?\) VALUES", r"INSERT \1", text)
    text = re.sub(r" (ORDER BY|LIMIT|RETURNING) .*?(?= FOR UPDATE|$)", "", text)
    table = re.search(r"^(?:SELECT|INSERT|UPDATE|DELETE FROM) (\w+)", text)
    if table:
        text = text.replace(f"{table[1]}.", "")
    rows = params if many else [params]
    text = _with(text, rows[0] if rows else None)
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    room = WIDTH - len(more)
    return (text if len(text) <= room else text[: room - 3] + "...") + more


def _with(text: str, params: Any) -> str:
    """The statement with its values in place of its placeholders."""
    if isinstance(params, (list, tuple)):
        for value in params:
            # psycopg's integers are a subclass whose repr is Int4(1).
            shown = int.__repr__(value) if isinstance(value, int) else repr(value)
            text = text.replace("%s", shown.replace("%", "%%"), 1)
    return text.replace("%%", "%")
