"""Lost replies of real servers: the command was executed, but the client does not know it."""

import socket

import pytest
import redis

from servers.proxy.proxy import LostReply, Proxy
from servers.tests.polling import eventually
from servers.valkey import client_at


def test_set_nx_with_a_lost_reply_leaves_the_key(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    """redis-py's ten retries would repeat the command, and its own key would refuse it."""
    client.ping()
    lost, other = proxy.lose_reply(b"lock:42"), proxy.lose_reply(b"lock:43")
    cancelled = proxy.lose_reply(b"lock:41")
    cancelled.cancel()
    assert client.set("lock:41", "mine", nx=True)
    assert (lost.fired, lost.reply, cancelled.fired) == (False, b"", False)
    with pytest.raises(redis.ConnectionError):
        client.set("lock:42", "mine", nx=True)
    assert (lost.fired, lost.reply, other.fired) == (True, b"+OK\r\n", False)
    assert direct.get("lock:42") == "mine"
    eventually(lambda: proxy.connections == 0, what="its connection to the server has ended")
    assert client.get("lock:42") == "mine", "one reply, not all of them"
    with pytest.raises(redis.ConnectionError):
        client.get("lock:43")
    assert other.fired


@pytest.mark.parametrize("size", [1, 100])
def test_request_in_pieces_is_matched_after_its_prefix(
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
            lines = [replies.readline() for _ in range(3)]
        assert lines[0] == b"+OK\r\n", "what came before `after` is no match"
        with client_at(proxy.port) as other:
            assert other.set("lock:split", "other"), "nor is what comes on another connection"
        send(b"SET lock:split 2\r\n")
        assert pieces.recv(100) == b""
    assert lost.fired
    assert lost.reply == b"+OK\r\n"
    assert direct.get("lock:split") == "2"


def test_client_that_leaves_early_does_not_use_up_the_rule(
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
    assert lost.fired


def test_rule_without_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="match is empty"):
        LostReply(b"")
