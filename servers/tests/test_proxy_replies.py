"""Replies of real servers that get lost: the command was carried out, the client does not know."""

import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import redis

from servers import embedded
from servers.proxy.proxy import LostReply, Proxy
from servers.tests.polling import eventually
from servers.valkey import client_at


def test_a_set_nx_whose_reply_is_lost_leaves_the_key_there(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    """With redis-py's ten retries the client would ask again, and find its own key in the way."""
    client.ping()
    lost, other = proxy.lose_reply(b"lock:42"), proxy.lose_reply(b"lock:43")
    client.set("lock:41", "mine", nx=True)
    assert (lost.fired, lost.reply) == (False, b"")
    with pytest.raises(redis.ConnectionError):
        client.set("lock:42", "mine", nx=True)
    assert lost.wait(5)
    assert (lost.fired, lost.reply, other.fired) == (True, b"+OK\r\n", False)
    assert direct.get("lock:42") == "mine"
    eventually(lambda: proxy.connections == 0, what="its connection to the server has ended")
    assert client.get("lock:42") == "mine", "one reply, not all of them"
    with pytest.raises(redis.ConnectionError):
        client.get("lock:43")
    assert other.wait(5)


@pytest.mark.parametrize("size", [1, 100])
def test_a_request_that_comes_in_pieces_is_found_and_only_after_what_it_is_to_follow(
    proxy: Proxy, direct: redis.Redis, size: int
) -> None:
    lost = proxy.lose_reply(b"lock:split", after=b"PRODUCT:apple")

    def send(text: bytes) -> None:
        for start in range(0, len(text), size):
            pieces.sendall(text[start : start + size])

    with socket.create_connection(("127.0.0.1", proxy.port), 5) as pieces:
        pieces.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send(b"SET lock:split 1\r\nECHO PRODUCT:apple\r\n")
        with pieces.makefile("rb") as replies:
            said = [replies.readline() for _ in range(3)]
        assert said[0] == b"+OK\r\n", "what came before `after` is no match"
        with client_at(proxy.port) as other:
            assert other.set("lock:split", "other"), "nor is what comes on another connection"
        send(b"SET lock:split 2\r\n")
        assert pieces.recv(100) == b""
    assert lost.wait(5)
    assert lost.reply == b"+OK\r\n"
    assert direct.get("lock:split") == "2"


def test_a_rule_that_was_cancelled_loses_nothing(proxy: Proxy, client: redis.Redis) -> None:
    lost = proxy.lose_reply(b"lock:x")
    lost.cancel()
    assert client.set("lock:x", 1)
    assert not lost.wait(0)
    lost.cancel()


def test_a_client_that_leaves_before_the_reply_does_not_use_the_rule_up(
    proxy: Proxy, direct: redis.Redis
) -> None:
    lost = proxy.lose_reply(b"lock:queue")
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as leaving:
        leaving.sendall(b"BLPOP lock:queue 0\r\n")
        eventually(lambda: direct.info()["blocked_clients"] == 1, what="it waits at the server")
    eventually(lambda: direct.info()["blocked_clients"] == 0, what="the server saw it leave")
    assert not lost.fired
    eventually(lambda: proxy.connections == 0, what="its connection has ended")
    with client_at(proxy.port) as client, pytest.raises(redis.ConnectionError):
        client.lpush("lock:queue", "1")
    assert lost.wait(5)


def test_a_request_that_is_lost_was_never_seen_by_the_server(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    client.ping()
    lost = proxy.lose_request(b"lock:y")
    with pytest.raises(redis.ConnectionError):
        client.set("lock:y", 1)
    assert lost.wait(5)
    assert direct.get("lock:y") is None
    assert client.set("lock:y", 1), "one request, not all of them"


def test_a_rule_without_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="say which one"):
        LostReply(b"")


# --- PostgreSQL, on a Unix socket -----------------------------------------------------------------


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


def sold(database: str) -> list[Any]:
    """Every product that was sold, once for each unit."""
    with psycopg.connect(database) as connection:
        return connection.execute("SELECT product FROM sold ORDER BY product").fetchall()


def test_a_commit_whose_reply_is_lost_leaves_the_row_there_and_a_refusal_can_be_taken_back(
    postgres: Proxy, database: str
) -> None:
    lost = postgres.lose_reply(b"COMMIT", after=b"apple")
    with connect(postgres, database) as other:
        sell(other, "pear")
    assert not lost.fired, "another product's commit"
    with pytest.raises(psycopg.OperationalError), connect(postgres, database) as connection:
        sell(connection, "apple")
    assert lost.wait(5)
    assert b"COMMIT" in lost.reply, "the command tag: it did happen"
    assert sold(database) == [("apple",), ("pear",)]
    with connect(postgres, database) as connection:
        sell(connection, "apple")
    assert sold(database) == [("apple",), ("apple",), ("pear",)]
    postgres.refuse()
    with pytest.raises(psycopg.OperationalError):
        connect(postgres, database)
    postgres.pass_on()
    connect(postgres, database).close()
