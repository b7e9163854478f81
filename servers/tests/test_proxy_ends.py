"""The proxy before a real Valkey: connections that close, a replica, and the proxy's own end."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

import pytest
import redis

from servers import embedded
from servers.proxy.proxy import Proxy
from servers.tests.proxied import (
    client_at,
    eventually,
    has_left,
    is_cut,
    listen_on,
)

# --- a client closes ------------------------------------------------------------------------------


def test_what_a_client_sends_before_it_closes_arrives_at_a_server_that_accepts_late() -> None:
    with socket.socket() as slow:
        slow.bind(("127.0.0.1", 0))
        slow.listen(0)
        full = socket.create_connection(slow.getsockname(), 5)  # its queue; others must try again
        with full, Proxy(slow.getsockname()) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port), 5) as hasty:
                hasty.sendall(b"hello")
            eventually(
                lambda: has_left(proxy), what="the client has left, the server has not accepted yet"
            )
            slow.accept()[0].close()
            slow.settimeout(10)
            with slow.accept()[0] as accepted:
                assert accepted.recv(100) == b"hello"
                assert accepted.recv(100) == b""


# --- replication ----------------------------------------------------------------------------------


def test_a_replica_behind_a_black_hole_loses_the_last_write_when_it_is_promoted(
    proxy: Proxy, direct: redis.Redis, tmp_path: Path
) -> None:
    """Without the black hole the bytes are in the replica's socket already, and nothing is lost."""
    replica = embedded.Valkey(tmp_path, replica_of=("127.0.0.1", proxy.port))
    embedded.adopt(replica.start())
    try:
        with client_at(replica.port) as promoted:
            eventually(lambda: _is_linked(promoted), what="the replica follows", timeout=20)
            direct.set("before", 1)
            assert direct.wait(1, 5000) == 1
            proxy.black_hole_replication()
            with client_at(
                proxy.port
            ).client() as buyer:  # one connection: WAIT counts its own writes
                assert buyer.set("lock", "A"), "other clients pass"
                assert buyer.wait(1, 300) == 0
            assert _is_linked(promoted), "its link stays open"
            replica.promote()
            assert (promoted.get("before"), promoted.get("lock")) == ("1", None)
            assert direct.get("lock") == "A"

            promoted.replicaof("127.0.0.1", str(proxy.port))
            proxy.pass_on()
            eventually(lambda: promoted.get("lock") == "A", what="it follows again", timeout=20)
    finally:
        replica.stop()


def _is_linked(replica: redis.Redis) -> bool:
    return bool(replica.info("replication")["master_link_status"] == "up")


# --- its own end ----------------------------------------------------------------------------------


def test_a_stopped_proxy_leaves_no_thread_port_or_socket(
    valkey: embedded.Valkey, tmp_path: Path
) -> None:
    before = threading.active_count()
    folder = Path(tempfile.mkdtemp(prefix="oversold-"))
    plain = Proxy(("127.0.0.1", valkey.port))
    on_a_socket = Proxy(("127.0.0.1", valkey.port), folder=folder)
    for proxy in (plain, on_a_socket):
        proxy.start()
        proxy.start()
    connected = socket.create_connection(("127.0.0.1", plain.port), 5)
    with connected:
        for proxy in (plain, on_a_socket):
            proxy.stop()
            proxy.stop()
        assert is_cut(connected)
    assert threading.active_count() == before
    listen_on(plain.port)
    folder.rmdir()  # fails if the socket is left in it
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        plain.cut()


def test_connections_that_it_is_accepting_are_cut_when_it_stops(valkey: embedded.Valkey) -> None:
    for _ in range(20):
        proxy = Proxy(("127.0.0.1", valkey.port))
        proxy.start()
        clients = [socket.create_connection(("127.0.0.1", proxy.port), 5) for _ in range(20)]
        proxy.stop()
        for client in clients:
            with client:
                assert is_cut(client)


def test_it_can_be_stopped_in_any_mode(valkey: embedded.Valkey) -> None:
    for mode in ("pass_on", "black_hole", "refuse", "black_hole_replication"):
        with Proxy(("127.0.0.1", valkey.port)) as proxy, client_at(proxy.port, timeout=0.05) as one:
            one.ping()
            getattr(proxy, mode)()
            if mode == "black_hole":
                with pytest.raises(redis.TimeoutError):
                    one.ping()
        listen_on(proxy.port)
