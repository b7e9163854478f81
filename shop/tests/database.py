"""Faults and waiting statements of PostgreSQL in a test, and connections outside of Django.

The faults are a wrong address, a killed backend and a lost reply.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
from django.db import connection

from servers.proxy.proxy import Proxy

#: Milliseconds for which PostgreSQL waits until a terminated backend is gone.
TERMINATION_TIMEOUT_MS = 5_000


@contextmanager
def database_at(folder: Path) -> Iterator[None]:
    """Have Django look for PostgreSQL's socket in `folder`. An empty folder means an outage."""
    original_host = connection.settings_dict["HOST"]
    connection.close()
    connection.settings_dict["HOST"] = str(folder)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["HOST"] = original_host


@contextmanager
def connect_outside_django() -> Iterator[psycopg.Connection[Any]]:
    """Open a connection to the test's server that Django does not manage."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as outside_connection:
        yield outside_connection


def kill_this_threads_backend() -> None:
    """End the server process behind this thread's connection, and wait until it is gone."""
    pid = connection.connection.info.backend_pid
    with connect_outside_django() as outside_connection:
        row = outside_connection.execute(
            "SELECT pg_terminate_backend(%s, %s)", [pid, TERMINATION_TIMEOUT_MS]
        ).fetchone()
    assert row == (True,), "the backend should have ended"


class CommitReplyDropper:
    """A proxy in front of PostgreSQL that forwards one COMMIT and drops the reply.

    folder          the folder of the proxy's socket
    has_lost_reply  whether the proxy has dropped the reply
    """

    def __init__(self) -> None:
        # Not pytest's tmp_path: the path of a Unix socket must be short.
        self._temporary_folder = tempfile.TemporaryDirectory(prefix="oversold-")
        self.folder = Path(self._temporary_folder.name)
        with connect_outside_django() as outside_connection:
            host = outside_connection.info.host
            port = outside_connection.info.port
        server = Path(host) / f".s.PGSQL.{port}" if host.startswith("/") else (host, port)
        self._proxy = Proxy(server, folder=self.folder)

    @property
    def has_lost_reply(self) -> bool:
        return self._commit_reply.fired

    def __enter__(self) -> Self:
        self._proxy.start()
        self._commit_reply = self._proxy.lose_reply(b"COMMIT")
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.stop()
        self._temporary_folder.cleanup()


def has_waiting_statement() -> bool:
    """Return whether a statement waits for a lock in PostgreSQL."""
    return count_waiting_statements() > 0


def count_waiting_statements() -> int:
    """Return the number of statements that wait for a lock in PostgreSQL."""
    with connect_outside_django() as outside_connection:
        row = outside_connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'",
            [connection.settings_dict["NAME"]],
        ).fetchone()
    return 0 if row is None else int(row[0])
