"""Faults of PostgreSQL for tests, and a test's queries on connections that Django does not manage.

The faults are a server that does not answer, a killed backend (the server process of a connection)
and a lost reply to COMMIT.
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

#: Maximum time that PostgreSQL waits for the end of a backend that it has terminated.
TERMINATION_TIMEOUT_MS = 5_000


@contextmanager
def connect_django_to(folder: Path) -> Iterator[None]:
    """Make Django connect to the PostgreSQL socket in `folder` until the block ends.

    With an empty folder no connection succeeds, as in an outage of PostgreSQL.
    """
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
    """Connect to the tests' PostgreSQL server without Django, until the block ends."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as outside_connection:
        yield outside_connection


def kill_this_threads_backend() -> None:
    """Terminate the backend (server process) of the thread's Django connection, and wait for it.

    The next query of this thread then fails, as after a restart of PostgreSQL.
    """
    pid = connection.connection.info.backend_pid
    with connect_outside_django() as outside_connection:
        row = outside_connection.execute(
            "SELECT pg_terminate_backend(%s, %s)", [pid, TERMINATION_TIMEOUT_MS]
        ).fetchone()
    assert row == (True,), "the backend should have ended"


class CommitReplyDropper:
    """A proxy in front of PostgreSQL that loses the reply to the first COMMIT.

    PostgreSQL commits the transaction, but the client cannot know. The proxy runs during a block:
    `with CommitReplyDropper() as proxy, connect_django_to(proxy.folder): ...`.

    folder          the folder of the proxy's socket
    has_lost_reply  whether the proxy has dropped the reply to a COMMIT
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
    """Return whether a statement in the test's database waits for a lock, such as a row lock."""
    return count_waiting_statements() > 0


def count_waiting_statements() -> int:
    """Return how many statements in the test's database wait for a lock, such as a row lock."""
    with connect_outside_django() as outside_connection:
        row = outside_connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'",
            [connection.settings_dict["NAME"]],
        ).fetchone()
    return 0 if row is None else int(row[0])
