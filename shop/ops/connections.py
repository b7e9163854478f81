"""Functions that remove dead connections from the pool, or open a connection outside the pool."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, connections

from shop.ops.database import is_connection_lost
from shop.ops.postgres import ReplyTimeout


def discard_dead_connections(error: DatabaseError | InterfaceError) -> None:
    """If the error means a lost connection, close it, and remove dead connections from the pool.

    After a restart of PostgreSQL all connections are dead, and each of them would make a request
    fail. After a ReplyTimeout nothing is done, because PostgreSQL would not reply to a check of the
    pool either.
    """
    if not is_connection_lost(error) or isinstance(error.__cause__, ReplyTimeout):
        return
    pool = getattr(connection, "pool", None)
    if pool is not None and connection.connection is not None:
        # Close the psycopg connection. connection.close() below only returns it to the pool, which
        # would keep it if the server still answers, for example because it is read-only now.
        connection.connection.close()
    connection.close()
    if pool is not None:
        pool.check()


def replace_all_connections() -> None:
    """Close this thread's connection and all connections of the pool. The pool opens new ones."""
    pool = getattr(connection, "pool", None)
    if pool is not None:
        pool.drain()
    connection.close()


@contextmanager
def use_own_connection(**options: Any) -> Iterator[None]:
    """Give this thread a new connection outside the pool until the block ends.

    options  connection options that override the shop's
    """
    pooled_connection = connections[DEFAULT_DB_ALIAS]
    own_connection = pooled_connection.copy()
    own_connection.settings_dict["OPTIONS"].pop("pool", None)
    own_connection.settings_dict["OPTIONS"].update(options)
    connections[DEFAULT_DB_ALIAS] = own_connection
    try:
        yield
    finally:
        own_connection.close()
        connections[DEFAULT_DB_ALIAS] = pooled_connection


def use_spare_connection() -> AbstractContextManager[None]:
    """Give this thread a connection outside the pool for a block, if the pool has no idle one.

    Only the pages of a demo use it. Under a lock in the database, waiting buyers may occupy all
    connections of the pool; a page should be shown all the same.
    """
    wrapper = connections[DEFAULT_DB_ALIAS]
    pool: Any = getattr(wrapper, "pool", None)
    needs_connection = pool is not None and wrapper.connection is None
    if needs_connection and not pool.get_stats()["pool_available"]:
        return use_own_connection()
    return nullcontext()
