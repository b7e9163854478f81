"""Whether a thread that does not move waits for another one."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from django.db import connections


def waits_in_the_database(backends: AbstractSet[int], using: str) -> bool:
    """Whether PostgreSQL lets one of these processes wait for another one's lock."""
    connection = connections[using]
    if connection.vendor != "postgresql" or not backends:
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT bool_or(pg_blocking_pids(pid) <> '{}') FROM unnest(%s::int[]) pid",
            [list(backends)],
        )
        (waits,) = cursor.fetchone()
    return bool(waits)
