"""The proxy before a real PostgreSQL, on a Unix socket."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from servers import embedded
from servers.proxy.proxy import Proxy
from servers.tests.proxied import (
    eventually,
)


@pytest.fixture(scope="module")
def database() -> str:
    url = embedded.create_database(f"oversold_proxy_{secrets.token_hex(4)}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE sold (product text)")
    return url


@pytest.fixture
def postgres(database: str) -> Iterator[Proxy]:
    server = Path(parse_qs(urlsplit(database).query)["host"][0]) / ".s.PGSQL.5432"
    with (
        tempfile.TemporaryDirectory(prefix="oversold-") as folder,  # short enough for a socket
        Proxy(server, folder=Path(folder)) as proxy,
    ):
        yield proxy


def connect(proxy: Proxy, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(database, host=proxy.address, port=proxy.port, connect_timeout=5)


def sell(connection: psycopg.Connection[Any], product: str) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO sold VALUES (%s)", [product])


def sold(database: str, product: str) -> int:
    with psycopg.connect(database) as connection:
        counted = connection.execute("SELECT count(*) FROM sold WHERE product = %s", [product])
        row = counted.fetchone()
    assert row is not None
    return int(row[0])


def test_a_commit_whose_reply_is_lost_leaves_the_row_there(postgres: Proxy, database: str) -> None:
    lost = postgres.lose_reply(b"COMMIT", after=b"apple")
    with connect(postgres, database) as other:
        sell(other, "pear")
    assert not lost.fired, "another product's commit"
    with pytest.raises(psycopg.OperationalError), connect(postgres, database) as connection:
        sell(connection, "apple")
    assert lost.wait(5)
    assert b"COMMIT" in lost.reply, "the command tag: it did happen"
    assert sold(database, "apple") == 1
    with connect(postgres, database) as connection:
        sell(connection, "apple")
    assert sold(database, "apple") == 2


def test_postgresql_sees_at_once_that_a_client_is_gone(postgres: Proxy, database: str) -> None:
    connection = connect(postgres, database)
    pid = connection.info.backend_pid
    connection.execute("INSERT INTO sold VALUES ('gone')")
    with psycopg.connect(database, autocommit=True) as beside:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        assert beside.execute(asked, [pid]).fetchone() == (1,)
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)  # as after a SIGKILL: no goodbye
        eventually(
            lambda: beside.execute(asked, [pid]).fetchone() == (0,), what="its backend has ended"
        )
    connection.close()
    assert sold(database, "gone") == 0


def test_a_database_that_refused_is_reachable_again_after_pass_on(
    postgres: Proxy, database: str
) -> None:
    postgres.refuse()
    with pytest.raises(psycopg.OperationalError):
        connect(postgres, database)
    postgres.pass_on()
    connect(postgres, database).close()
