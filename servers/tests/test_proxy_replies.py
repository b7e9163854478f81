"""Lost replies of real servers: the command was executed, but its client gets no reply.

A rule of the proxy (ProxyRule) loses the reply to one matching command.
"""

import socket

import pytest
import redis

from servers.proxy.proxy import Proxy, ProxyRule
from servers.tests.polling import eventually
from servers.valkey import client_at


def test_set_nx_with_a_lost_reply_leaves_the_key(
    proxy: Proxy, client: redis.Redis, direct_client: redis.Redis
) -> None:
    """The server executes SET NX, but a rule of the proxy loses the reply.

    A rule loses only one reply, and a cancelled rule loses none. The client must not retry: a
    second SET NX would be refused, because the first has set the key.
    """
    client.ping()
    rule_41, rule_42, rule_43 = (proxy.lose_reply(b"lock:%d" % number) for number in (41, 42, 43))
    rule_41.cancel()
    assert client.set("lock:41", "mine", nx=True)
    assert (rule_41.fired, rule_42.fired, rule_42.reply) == (False, False, b"")
    with pytest.raises(redis.ConnectionError):
        client.set("lock:42", "mine", nx=True)
    assert (rule_42.fired, rule_42.reply, rule_43.fired) == (True, b"+OK\r\n", False)
    assert direct_client.get("lock:42") == "mine"
    eventually(lambda: proxy.client_count == 0, what="the connection of the lost reply has ended")
    assert client.get("lock:42") == "mine", "a rule must lose one reply only"
    with pytest.raises(redis.ConnectionError):
        client.get("lock:43")
    assert rule_43.fired


@pytest.mark.parametrize("piece_bytes", [1, 100])
def test_request_in_pieces_is_matched_after_other_bytes(
    proxy: Proxy, direct_client: redis.Redis, piece_bytes: int
) -> None:
    """A client sends a request in pieces of `piece_bytes`. The rule still recognizes the request.

    The rule has the argument `after`, so the client must first send those bytes.
    """
    rule = proxy.lose_reply(b"lock:split", after=b"PRODUCT:apple")

    def send(text: bytes) -> None:
        for start in range(0, len(text), piece_bytes):
            client.sendall(text[start : start + piece_bytes])

    with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send(b"SET lock:split 1\r\nECHO PRODUCT:apple\r\n")
        with client.makefile("rb") as replies:
            # The reply to SET is one line. The reply to ECHO is two: the length and the text.
            lines = [replies.readline() for _ in range(3)]
        assert lines[0] == b"+OK\r\n", "a request before `after` was sent must not match"
        with client_at(proxy.port) as other_client:
            assert other_client.set("lock:split", "x"), "another connection must not match"
        send(b"SET lock:split 2\r\n")
        assert client.recv(100) == b""
    assert rule.fired
    assert rule.reply == b"+OK\r\n"
    assert direct_client.get("lock:split") == "2"


def test_client_that_leaves_early_does_not_use_up_the_rule(
    proxy: Proxy, direct_client: redis.Redis
) -> None:
    """The rule drops one reply to a command with the bytes `lock:queue`.

    The first client with such a command leaves before a reply is sent. So the rule drops the reply
    to the second client.
    """

    def count_blocked_clients() -> int:
        return int(direct_client.info()["blocked_clients"])

    rule = proxy.lose_reply(b"lock:queue")
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as leaving_client:
        leaving_client.sendall(b"BLPOP lock:queue 0\r\n")
        eventually(lambda: count_blocked_clients() == 1, what="the client waits at the server")
    eventually(lambda: count_blocked_clients() == 0, what="the server saw the client leave")
    assert not rule.fired
    eventually(lambda: proxy.client_count == 0, what="the client's connection has ended")
    with client_at(proxy.port) as client, pytest.raises(redis.ConnectionError):
        client.lpush("lock:queue", "1")
    assert rule.fired


def test_rule_without_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="match is empty"):
        ProxyRule(b"")
