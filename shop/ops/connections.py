"""Connections to PostgreSQL: those that have died, and one outside the pool."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, connections

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
def own_connection(**options: Any) -> Iterator[None]:
    """This thread has a connection outside the pool for as long as the block lasts, with these
    options beside the shop's own."""
    pooled = connections[DEFAULT_DB_ALIAS]
    own = pooled.copy()
    own.settings_dict["OPTIONS"].pop("pool", None)
    own.settings_dict["OPTIONS"].update(options)
    connections[DEFAULT_DB_ALIAS] = own
    try:
        yield
    finally:
        own.close()
        connections[DEFAULT_DB_ALIAS] = pooled


def beside_the_pool() -> AbstractContextManager[None]:
    """Where the pool has nothing left to give, this thread has a connection of its own. For pages
    that only a demo shows: elsewhere the pool stays the limit of what a node takes from PostgreSQL.

    Under a lock in the database each buyer who queues keeps a connection. The page that shows the
    rush, and its Stop, would wait behind them and say that the database does not answer.
    """
    wrapper = connections[DEFAULT_DB_ALIAS]
    pool: Any = getattr(wrapper, "pool", None)
    connects = pool is not None and wrapper.connection is None
    has_to_wait = connects and not pool.get_stats()["pool_available"]
    return own_connection() if has_to_wait else nullcontext()
