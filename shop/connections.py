"""Connections to PostgreSQL that have died."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError, connection

from shop.postgres import Silence


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
