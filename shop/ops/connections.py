"""Connections to PostgreSQL: those that have died, and one outside the pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from shop.ops.postgres import Silence


def is_gone(error: DatabaseError | InterfaceError) -> bool:
    """Whether this error means that the connection is lost.

    No SQLSTATE: nobody answered. 08: connection; 53: no room; 57P: shutting down, killed.
    """
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    return sqlstate is None or sqlstate.startswith(("08", "53", "57P"))


def discard_dead(error: DatabaseError | InterfaceError) -> None:
    """If this error lost its connection, throw out every dead one of the pool at once, not one per
    request: after a restart of PostgreSQL all of them are dead."""
    if not is_gone(error) or isinstance(error.__cause__, Silence):
        return  # after a silence, asking the others would take as long, each
    connection.close()
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.check()


@contextmanager
def beside_the_pool() -> Iterator[None]:
    """Where the pool has nothing left to give, this thread has a connection of its own for as long
    as the block lasts. For pages that only a demo shows: elsewhere the pool stays the limit of what
    a node takes from PostgreSQL.

    Under a lock in the database each buyer who queues keeps a connection. The page that shows the
    rush, and its Stop, would wait behind them and say that the database does not answer.
    """
    pooled = connections[DEFAULT_DB_ALIAS]
    if not _has_to_wait(pooled):
        yield
        return
    alone = pooled.copy()
    del alone.settings_dict["OPTIONS"]["pool"]
    connections[DEFAULT_DB_ALIAS] = alone
    try:
        yield
    finally:
        alone.close()
        connections[DEFAULT_DB_ALIAS] = pooled


def _has_to_wait(wrapper: BaseDatabaseWrapper) -> bool:
    """Whether this thread would have to wait for a connection of the pool."""
    pool = getattr(wrapper, "pool", None)
    if pool is None or wrapper.connection is not None:
        return False
    return not pool.get_stats()["pool_available"]
