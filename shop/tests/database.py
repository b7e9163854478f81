"""Faults of PostgreSQL for a test: another address, a killed backend, a lost reply."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
from django.db import connection

from servers.proxy.proxy import Proxy


@contextmanager
def database_at(folder: Path) -> Iterator[None]:
    """Have Django look for PostgreSQL's socket in `folder`."""
    before = connection.settings_dict["HOST"]
    connection.close()
    connection.settings_dict["HOST"] = str(folder)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["HOST"] = before


@contextmanager
def beside_django() -> Iterator[psycopg.Connection[Any]]:
    """A connection that Django knows nothing of."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as beside:
        yield beside


def kill_this_threads_backend() -> None:
    """End the server process behind this thread's connection, and wait until it is gone."""
    pid = connection.connection.info.backend_pid
    with beside_django() as beside:
        gone = beside.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchone()
    assert gone == (True,), "the backend is still there: the fault did not fire"


class ReplyCutter:
    """A proxy before PostgreSQL that lets one COMMIT through and loses its reply.

    `folder` is where a client finds its socket; `cut` counts the replies that got lost.
    """

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="oversold-")  # short enough for a socket
        self.folder = Path(self._made.name)
        with beside_django() as beside:
            host, port = beside.info.host, beside.info.port
        server = Path(host) / f".s.PGSQL.{port}" if host.startswith("/") else (host, port)
        self._proxy = Proxy(server, folder=self.folder)

    @property
    def cut(self) -> int:
        return int(self._lost.fired)

    def __enter__(self) -> Self:
        self._proxy.start()
        self._lost = self._proxy.lose_reply(b"COMMIT")
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.stop()
        self._made.cleanup()


def somebody_waits_for_a_row() -> bool:
    """Whether a statement waits in PostgreSQL's queue for a lock."""
    return how_many_wait_for_a_row() > 0


def how_many_wait_for_a_row() -> int:
    """How many statements wait in PostgreSQL's queues for a lock."""
    with beside_django() as beside:
        waiting = beside.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'",
            [connection.settings_dict["NAME"]],
        ).fetchone()
    return 0 if waiting is None else int(waiting[0])
