"""The proxy before a real Valkey: every mode."""

from __future__ import annotations

import socket
import time

import pytest
import redis

from servers import embedded
from servers.proxy.proxy import Proxy
from servers.tests.proxied import (
    client_at,
    eventually,
    has_lost,
    is_queued,
    listen_on,
    names,
)


def test_everything_is_passed_on_in_order_whatever_its_size(
    proxy: Proxy, client: redis.Redis
) -> None:
    big = "x" * 5_000_000
    client.set("big", big)
    assert client.get("big") == big
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(2000):
            pipeline.incr("n")
        assert pipeline.execute() == list(range(1, 2001))


def test_a_delay_holds_each_direction_up_and_keeps_the_order(
    proxy: Proxy, client: redis.Redis
) -> None:
    client.ping()
    proxy.delay(0.1)
    started = time.monotonic()
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(10):
            pipeline.incr("n")
        numbers = pipeline.execute()
    assert numbers == sorted(numbers)
    assert 0.2 <= time.monotonic() - started < 2
    proxy.pass_on()
    started = time.monotonic()
    client.ping()
    assert time.monotonic() - started < 0.1


def test_a_black_hole_answers_nobody_and_what_was_dropped_or_delayed_is_counted(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    """The evidence of a fault: a hole into which nobody sent anything has harmed nobody."""
    client.ping()
    assert (proxy.dropped, proxy.delayed) == (0, 0)
    proxy.delay(0.01)
    client.ping()
    both_ways = len(b"*1\r\n$4\r\nPING\r\n" + b"+PONG\r\n")
    assert (proxy.dropped, proxy.delayed) == (0, both_ways)
    proxy.black_hole()
    for _ in range(2):  # on the connection that is there, and on a new one
        with pytest.raises(redis.TimeoutError):
            client.set("k", "v")
    assert proxy.dropped >= len(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n")
    assert proxy.delayed == both_ways
    lost = proxy.dropped
    proxy.pass_on()
    client.ping()
    assert proxy.dropped == lost
    assert direct.get("k") is None


def test_after_a_black_hole_connections_that_lost_bytes_are_cut_and_the_others_stay(
    proxy: Proxy, direct: redis.Redis
) -> None:
    loser, keeper = (socket.create_connection(("127.0.0.1", proxy.port), 5) for _ in range(2))
    with loser, keeper:
        for each in (loser, keeper):
            each.sendall(b"PING\r\n")
            assert each.recv(100) == b"+PONG\r\n"
        loser.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nha")
        eventually(
            lambda: _any_client(direct, "qbuf", above=0), what="half a message is at the server"
        )
        proxy.black_hole()
        loser.sendall(b"lf\r\n")
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as newcomer:
            eventually(lambda: proxy.connections == 3, what="the newcomer is accepted")
            eventually(lambda: has_lost(proxy) == 1, what="the proxy has dropped something")
            proxy.pass_on()
            newcomer.sendall(b"PING\r\n")
            assert newcomer.recv(100) == b"+PONG\r\n", (
                "who was accepted in the hole and sent nothing"
            )
        assert loser.recv(100) == b""
        keeper.sendall(b"PING\r\n")
        assert keeper.recv(100) == b"+PONG\r\n"
    assert direct.get("k") is None


def _any_client(direct: redis.Redis, field: str, *, above: int) -> bool:
    clients: list[dict[str, str]] = direct.client_list()
    return any(int(c[field]) > above for c in clients if c["cmd"] != "client|list")


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_delayed_is_delivered_at_once_by_pass_on_and_lost_in_a_black_hole(
    proxy: Proxy, direct: redis.Redis, lost: bool
) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as late:
        eventually(lambda: proxy.connections == 1, what="it is connected")
        proxy.delay(60)
        late.sendall(b"SET late 1\r\n")
        eventually(lambda: is_queued(proxy), what="the command is in the proxy")
        assert direct.get("late") is None
        if lost:
            proxy.black_hole()
        proxy.pass_on()
        assert late.recv(100) == (b"" if lost else b"+OK\r\n")
    assert direct.get("late") == (None if lost else "1")


def test_in_a_black_hole_a_close_is_not_passed_on(proxy: Proxy, direct: redis.Redis) -> None:
    with client_at(proxy.port) as client:
        client.client_setname("gone")
        proxy.black_hole()
    eventually(lambda: has_lost(proxy) == 1, what="the proxy saw the close")
    assert "gone" in names(direct)
    proxy.pass_on()
    eventually(lambda: "gone" not in names(direct), what="the server has seen the close")


def test_a_proxy_that_refuses_looks_like_a_server_that_is_down_and_keeps_its_port(
    proxy: Proxy, client: redis.Redis
) -> None:
    client.ping()
    proxy.refuse()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), 5)
    with pytest.raises(OSError, match="in use"):
        listen_on(proxy.port)
    proxy.pass_on()
    assert client.ping()


def test_a_cut_ends_every_connection_and_new_ones_are_accepted(
    proxy: Proxy, direct: redis.Redis
) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as connected:
        connected.sendall(b"CLIENT SETNAME cut\r\n")
        assert connected.recv(100) == b"+OK\r\n"
        proxy.cut()
        assert connected.recv(100) == b""
    eventually(lambda: "cut" not in names(direct), what="the server has seen the close")
    with client_at(proxy.port) as client:
        assert client.ping()


def test_a_switch_sends_new_connections_elsewhere_and_cuts_the_others(
    valkey: embedded.Valkey,
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        there, gone = ("127.0.0.1", valkey.port), ("127.0.0.1", nobody.getsockname()[1])
        with Proxy(gone) as proxy, client_at(proxy.port) as client:
            with pytest.raises(redis.ConnectionError):
                client.ping()
            proxy.switch(there)
            with client.client() as connected:
                assert connected.ping()
                proxy.switch(gone)
                with pytest.raises(redis.ConnectionError):
                    connected.ping()
