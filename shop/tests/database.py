"""What tests do to PostgreSQL: another address, a killed backend, a lost reply."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psycopg
from django.db import connection

SOCKET = ".s.PGSQL.5432"


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
    """A proxy before PostgreSQL that lets COMMIT through and keeps its reply for itself.

    `folder` is where a client finds its socket; `cut` counts the replies that got lost.
    """

    def __init__(self) -> None:
        self.cut = 0
        self._folder = tempfile.TemporaryDirectory(prefix="oversold-")  # short enough for a socket
        self.folder = Path(self._folder.name)
        self._listener = socket.socket(socket.AF_UNIX)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener.bind(str(self.folder / SOCKET))
        self._listener.listen()
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # or accept() would go on waiting
        for thread in self._threads:
            thread.join(5)
        self._listener.close()
        self._folder.cleanup()

    def _start(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        committing = threading.Event()
        with client, _to_postgres() as server:
            replies = threading.Thread(target=self._reply, args=(server, client, committing))
            replies.start()
            with suppress(OSError):
                while data := client.recv(65536):
                    if b"COMMIT" in data:
                        committing.set()
                    server.sendall(data)
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            replies.join()

    def _reply(
        self, server: socket.socket, client: socket.socket, committing: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if committing.is_set():
                    assert b"COMMIT" in data, data  # the command tag: it did happen
                    self.cut += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)


def _to_postgres() -> socket.socket:
    """A connection to where DATABASE_URL points."""
    with beside_django() as beside:
        host, port = beside.info.host, beside.info.port
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server


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
