"""Replies of a real Valkey that get lost: the command was carried out, the client does not know."""

from __future__ import annotations

import socket

import pytest
import redis

from servers.proxy.lost_reply import Watcher
from servers.proxy.proxy import LostReply, Proxy
from servers.tests.proxied import (
    client_at,
    eventually,
)


def test_a_set_nx_whose_reply_is_lost_leaves_the_key_there(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    """With redis-py's ten retries the client would ask again, and find its own key in the way."""
    client.ping()
    lost = proxy.lose_reply(b"lock:42")
    assert (lost.fired, lost.reply) == (False, b"")
    client.set("lock:41", "mine", nx=True)
    with pytest.raises(redis.ConnectionError):
        client.set("lock:42", "mine", nx=True)
    assert lost.wait(5)
    assert lost.fired
    assert lost.reply == b"+OK\r\n"
    assert direct.get("lock:42") == "mine"
    eventually(lambda: proxy.connections == 0, what="its connection to the server has ended")
    assert client.get("lock:42") == "mine", "one reply, not all of them"


def test_every_rule_looks_for_its_own_request(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    rules = {key: proxy.lose_reply(key.encode()) for key in ("lock:a", "lock:b", "lock:c")}
    for key in ("lock:b", "lock:a"):
        with pytest.raises(redis.ConnectionError):
            client.incr(key)
        assert rules.pop(key).wait(5)
    assert not rules["lock:c"].fired
    assert client.incr("lock:a") == 2


def test_a_request_that_comes_in_pieces_is_found(proxy: Proxy, direct: redis.Redis) -> None:
    lost = proxy.lose_reply(b"lock:split", after=b"PRODUCT:apple")
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as pieces:
        pieces.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"SET lock:split 1\r\nECHO PRODUCT:apple\r\n":
            pieces.sendall(bytes([byte]))
        with pieces.makefile("rb") as replies:
            said = [replies.readline() for _ in range(3)]
        assert said[0] == b"+OK\r\n", "what came before `after` is no match"
        for byte in b"SET lock:split 2\r\n":
            pieces.sendall(bytes([byte]))
        assert pieces.recv(100) == b""
    assert lost.wait(5)
    assert lost.reply == b"+OK\r\n"
    assert direct.get("lock:split") == "2"


def test_only_what_follows_counts_within_one_chunk_too() -> None:
    watcher = Watcher(LostReply(b"COMMIT", after=b"apple"))
    assert not watcher.sees(b"COMMIT apple")
    assert not watcher.sees(b" pear")
    assert watcher.sees(b"COMMIT")
    assert not watcher.sees(b"COMMIT"), "a match needs an `after` of its own"
    assert watcher.sees(b"apple COMMIT")


def test_a_request_on_another_connection_does_not_match(proxy: Proxy, direct: redis.Redis) -> None:
    lost = proxy.lose_reply(b"lock:x", after=b"apple")
    with client_at(proxy.port) as one, client_at(proxy.port) as other:
        one.set("apple", 1)
        other.set("lock:x", "other")
        assert not lost.fired
        with pytest.raises(redis.ConnectionError):
            one.set("lock:x", "one")
    assert lost.wait(5)


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
