"""Where a call stops: before a statement, a COMMIT, a ROLLBACK or a function, and at a `step`."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from django.db.backends.signals import connection_created
from django.utils.module_loading import import_string

from .statements import short, short_of_many

#: Stops a thread before a step: called in that thread, with the step's text.
Stop = Callable[[str], None]
#: As one of `at`: before each SQL statement, each COMMIT and each ROLLBACK.
SQL = "sql"
#: Statements that only mark a place in a transaction: nothing of others can come between.
_MARKS = ("SAVEPOINT", "RELEASE SAVEPOINT", "SET ", "SHOW ", "BEGIN")

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


@contextmanager
def _function(stop: Stop, dotted: str) -> Iterator[None]:
    """Stop before each call of the function that has this name in this module."""
    original = import_string(dotted)

    @wraps(original)
    def stopping(*args: Any, **kwargs: Any) -> Any:
        stop(f"{dotted.rpartition('.')[2]}()")
        return original(*args, **kwargs)

    with patch(dotted, stopping):
        yield


@contextmanager
def _sql(stop: Stop, connected: Callable[[int], None]) -> Iterator[None]:
    """Stop before each statement on a connection that is opened inside the block."""
    ours = threading.current_thread()

    def before(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.lstrip().upper().startswith(_MARKS):
            params = list(params) if many else params
            stop(short_of_many(sql, params) if many else short(sql, params))
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
