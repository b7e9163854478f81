"""The proxy in front of a real Valkey: every mode, a replica behind it, and its own end."""

import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest
import redis

from servers import embedded
from servers.proxy.proxy import SOCKET, Proxy
from servers.tests.polling import eventually
from servers.valkey import client_at


def has_read(proxy: Proxy, text: bytes) -> bool:
    """Return whether a client has sent this and the proxy has read it."""
    return any(connection.has_sent(text) for connection in list(proxy._state.connections))


def ping(connected: socket.socket) -> bytes:
    connected.sendall(b"PING\r\n")
    return connected.recv(100)


def is_cut(connected: socket.socket) -> bool:
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:
        return True


def listen_on(port: int) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()


def test_everything_is_passed_on_in_order_whatever_its_size(
    proxy: Proxy, client: redis.Redis
) -> None:
    big = " ".join(map(str, range(700_000)))
    client.set("big", big)
    assert client.get("big") == big


def test_server_may_speak_first() -> None:
    """MySQL greets its clients, which send nothing before that."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Proxy(server.getsockname(), server_speaks_first=True) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client,
    ):
        server.settimeout(5)
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"hello")
            assert client.recv(5) == b"hello"
            client.sendall(b"user")
            assert accepted.recv(4) == b"user"


def test_delay_applies_to_both_directions_and_keeps_order(
    proxy: Proxy, client: redis.Redis
) -> None:
    client.ping()
    proxy.delay(0.1)
    started = time.monotonic()
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(10):
            pipeline.incr("late")
        assert pipeline.execute() == list(range(1, 11))
    assert 0.2 <= time.monotonic() - started < 2


def test_black_hole_drops_bytes_and_then_cuts_its_connections(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    """The dropped bytes are counted, because a black hole without any shows no fault."""
    loser, keeper = (socket.create_connection(("127.0.0.1", proxy.port), 5) for _ in range(2))
    with loser, keeper:
        for side in (loser, keeper):
            assert ping(side) == b"+PONG\r\n"
        loser.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nha")
        eventually(lambda: has_half_a_message(direct), what="half a message is at the server")
        proxy.black_hole()
        assert proxy.dropped == 0
        loser.sendall(b"lf\r\n")
        eventually(lambda: proxy.dropped == len(b"lf\r\n"), what="the proxy has dropped the rest")
        with pytest.raises(redis.TimeoutError):
            client.set("k", "of a new connection")
        lost = proxy.dropped
        assert lost > len(b"lf\r\n")
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as newcomer:
            eventually(lambda: proxy.connections == 4, what="the newcomer is accepted")
            proxy.pass_on()
            assert ping(newcomer) == b"+PONG\r\n", "it sent nothing in the hole"
        assert loser.recv(100) == b""
        assert ping(keeper) == b"+PONG\r\n"
    assert proxy.dropped == lost
    assert direct.get("k") is None


def has_half_a_message(direct: redis.Redis) -> bool:
    clients: list[dict[str, str]] = direct.client_list()
    return any(int(client["qbuf"]) for client in clients if client["cmd"] != "client|list")


@pytest.mark.parametrize("lost", [False, True])
def test_delayed_bytes_are_delivered_by_pass_on(
    proxy: Proxy, direct: redis.Redis, lost: bool
) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as late:
        proxy.delay(60)
        late.sendall(b"SET late 1\r\n")
        eventually(lambda: has_read(proxy, b"late"), what="the command is in the proxy")
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
    (connection,) = proxy._state.connections
    eventually(lambda: connection.has_dropped_data, what="the proxy saw the close")
    assert "gone" in str(direct.client_list())
    proxy.pass_on()
    eventually(lambda: "gone" not in str(direct.client_list()), what="the server saw the close")


def test_refusing_proxy_looks_down_and_keeps_its_port(proxy: Proxy, client: redis.Redis) -> None:
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


def test_switch_redirects_new_connections_and_cuts_old_ones(
    proxy: Proxy, client: redis.Redis, valkey: embedded.Valkey
) -> None:
    with socket.socket() as nobody, client.client() as connected:
        nobody.bind(("127.0.0.1", 0))
        connected.ping()
        proxy.switch(nobody.getsockname())
        for _ in range(2):  # on the connection that was there, and on a new one
            with pytest.raises(redis.ConnectionError):
                connected.ping()
        proxy.switch(("127.0.0.1", valkey.port))
        assert connected.ping()


def test_bytes_before_a_close_reach_a_late_server() -> None:
    with socket.socket() as slow:
        slow.bind(("127.0.0.1", 0))
        slow.listen(0)
        full = socket.create_connection(slow.getsockname(), 5)  # its queue; others must try again
        with full, Proxy(slow.getsockname()) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port), 5) as hasty:
                hasty.sendall(b"hello")
            eventually(lambda: has_read(proxy, b"hello"), what="the proxy has what it sent")
            slow.accept()[0].close()
            slow.settimeout(10)
            with slow.accept()[0] as accepted:
                assert accepted.recv(100) == b"hello"
                assert accepted.recv(100) == b""


def test_replica_behind_a_black_hole_loses_the_last_write(
    proxy: Proxy, direct: redis.Redis, tmp_path: Path
) -> None:
    """Without the black hole, the bytes are already in the replica's socket; nothing is lost."""
    replica = embedded.Valkey(tmp_path, replica_of=("127.0.0.1", proxy.port))
    embedded.kill_at_exit(replica.start())
    try:
        with client_at(replica.port) as promoted:
            eventually(lambda: _is_linked(promoted), what="the replica follows", timeout=20)
            direct.set("before", 1)
            assert direct.wait(1, 5000) == 1
            proxy.black_hole_replication()
            # On one connection: WAIT counts its own writes.
            with client_at(proxy.port).client() as buyer:
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


def test_stopped_proxy_leaves_no_thread_port_or_socket(
    valkey: embedded.Valkey, tmp_path: Path
) -> None:
    threads_before = set(threading.enumerate())
    folder = Path(tempfile.mkdtemp(prefix="oversold-"))
    plain = Proxy(("127.0.0.1", valkey.port))
    on_a_socket = Proxy(("127.0.0.1", valkey.port), folder=folder)
    for proxy in (plain, on_a_socket):
        proxy.start()
        proxy.start()
    on_a_socket.refuse()
    on_a_socket.pass_on()
    with socket.socket(socket.AF_UNIX) as local:
        local.connect(str(folder / SOCKET))
        assert ping(local) == b"+PONG\r\n"
    connected = socket.create_connection(("127.0.0.1", plain.port), 5)
    with connected:
        plain.black_hole()
        connected.sendall(b"PING\r\n")
        eventually(lambda: plain.dropped, what="it waits in a black hole")
        for proxy in (plain, on_a_socket):
            proxy.stop()
            proxy.stop()
        assert is_cut(connected)
    assert set(threading.enumerate()) <= threads_before
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
