"""The proxy in front of a real Valkey: each of its modes, a replica behind it, and its stop.

The modes: pass_on() passes bytes on, delay() does so later, refuse() rejects clients, black_hole()
drops bytes silently, and switch() changes the server.
"""

import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from servers import embedded
from servers.proxy.proxy import SOCKET_NAME, Proxy
from servers.tests.polling import eventually
from servers.valkey import client_at


def has_read(proxy: Proxy, text: bytes) -> bool:
    """Return whether the proxy has read this text from a client."""
    return any(connection.has_sent(text) for connection in list(proxy._state.connections))


def ping(client: socket.socket) -> bytes:
    """Send PING to Valkey and return the reply."""
    client.sendall(b"PING\r\n")
    return client.recv(100)


def assert_cut(client: socket.socket) -> None:
    """Wait until this client receives something. Assert that it is the end of the connection."""
    with suppress(ConnectionResetError):
        assert client.recv(1) == b"", "the connection should have ended"


def listen_on(port: int) -> None:
    """Listen on this port for a moment. Raises OSError if the port is taken."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()


def test_large_value_is_passed_on_unchanged(proxy: Proxy, client: redis.Redis) -> None:
    text = " ".join(map(str, range(700_000)))  # 4.8 MB
    client.set("key", text)
    assert client.get("key") == text


def test_server_may_speak_first() -> None:
    """A MySQL server sends the first bytes of a connection, not the client."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Proxy(server.getsockname(), server_speaks_first=True) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client,
    ):
        server.settimeout(5)
        server_side, _ = server.accept()
        with server_side:
            server_side.sendall(b"hello")
            assert client.recv(5) == b"hello"
            client.sendall(b"user")
            assert server_side.recv(4) == b"user"


def test_delay_applies_to_both_directions_and_keeps_order(
    proxy: Proxy, client: redis.Redis
) -> None:
    client.ping()
    proxy.delay(0.1)
    started_at = time.monotonic()
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(10):
            pipeline.incr("counter")
        assert pipeline.execute() == list(range(1, 11))
    # The ten commands are delayed together by 0.1 s, and so are their replies. If each command
    # waited for the reply to the previous one, this would take 2 s.
    assert 0.2 <= time.monotonic() - started_at < 2


def test_black_hole_drops_bytes_and_then_cuts_its_connections(
    proxy: Proxy, client: redis.Redis, direct_client: redis.Redis
) -> None:
    """pass_on() cuts a connection only if the black hole has dropped some of its bytes.

    One client sends a command in two parts; the black hole begins between them. Another client
    sends nothing in the black hole.
    """
    interrupted_client = socket.create_connection(("127.0.0.1", proxy.port), 5)
    silent_client = socket.create_connection(("127.0.0.1", proxy.port), 5)
    with interrupted_client, silent_client:
        for connection in (interrupted_client, silent_client):
            assert ping(connection) == b"+PONG\r\n"
        # The value `half` is sent in two parts.
        interrupted_client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nha")
        eventually(
            lambda: has_incomplete_command(direct_client), what="half a command is at the server"
        )
        proxy.black_hole()
        assert proxy.dropped_bytes == 0
        rest = b"lf\r\n"
        interrupted_client.sendall(rest)
        eventually(lambda: proxy.dropped_bytes == len(rest), what="the proxy has dropped the rest")
        with pytest.raises(redis.TimeoutError):
            client.set("k", "of a new connection")
        dropped_bytes = proxy.dropped_bytes
        assert dropped_bytes > len(rest)
        clients_before = proxy.client_count
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as newcomer:
            eventually(
                lambda: proxy.client_count == clients_before + 1, what="the newcomer is accepted"
            )
            proxy.pass_on()
            assert ping(newcomer) == b"+PONG\r\n", "a client without dropped bytes is not cut"
        assert interrupted_client.recv(100) == b""
        assert ping(silent_client) == b"+PONG\r\n"
    assert proxy.dropped_bytes == dropped_bytes
    assert direct_client.get("k") is None


def has_incomplete_command(direct_client: redis.Redis) -> bool:
    """Return whether Valkey has received only a part of a command from another client."""
    clients: list[dict[str, str]] = direct_client.client_list()
    return any(int(client["qbuf"]) for client in clients if client["cmd"] != "client|list")


@pytest.mark.parametrize(
    ("has_black_hole", "reply", "stored_value"), [(False, b"+OK\r\n", "1"), (True, b"", None)]
)
def test_delayed_bytes_are_delivered_by_pass_on(
    proxy: Proxy,
    direct_client: redis.Redis,
    has_black_hole: bool,
    reply: bytes,
    stored_value: str | None,
) -> None:
    """pass_on() delivers the bytes that delay() has held back, before their delay is over.

    But if a black hole begins before pass_on(), the bytes are dropped and the connection is cut.
    """
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
        proxy.delay(60)
        client.sendall(b"SET delayed 1\r\n")
        eventually(lambda: has_read(proxy, b"delayed"), what="the command is in the proxy")
        assert direct_client.get("delayed") is None
        if has_black_hole:
            proxy.black_hole()
        proxy.pass_on()
        assert client.recv(100) == reply
    assert direct_client.get("delayed") == stored_value


def test_close_in_a_black_hole_is_not_passed_on(proxy: Proxy, direct_client: redis.Redis) -> None:
    """The server sees that the client has closed only after pass_on()."""
    with client_at(proxy.port) as client:
        client.client_setname("gone")
        proxy.black_hole()
    (connection,) = proxy._state.connections
    eventually(lambda: connection.has_dropped_data, what="the proxy saw the close")
    assert "gone" in str(direct_client.client_list())
    proxy.pass_on()
    eventually(
        lambda: "gone" not in str(direct_client.client_list()), what="the server saw the close"
    )


def test_refusing_proxy_rejects_clients_and_keeps_its_port(
    proxy: Proxy, client: redis.Redis
) -> None:
    """No client can connect, as if the server were down, and no program can take the port."""
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
    """After a switch to a server that does not listen, no connection gets an answer."""
    with socket.socket() as not_listening, client.client() as one_connection:
        not_listening.bind(("127.0.0.1", 0))
        one_connection.ping()
        proxy.switch(not_listening.getsockname())
        for _ in range(2):  # redis-py connects again after the first error
            with pytest.raises(redis.ConnectionError):
                one_connection.ping()
        proxy.switch(("127.0.0.1", valkey.port))
        assert one_connection.ping()


def test_bytes_before_a_close_reach_a_slow_server() -> None:
    """The client closes its connection before the server has accepted the proxy's connection."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        # Fills the server's queue, so that the proxy has to wait.
        first_client = socket.create_connection(server.getsockname(), 5)
        with first_client, Proxy(server.getsockname()) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
                client.sendall(b"hello")
            eventually(lambda: has_read(proxy, b"hello"), what="the proxy has read the bytes")
            server.accept()[0].close()
            server.settimeout(10)
            with server.accept()[0] as server_side:
                assert server_side.recv(100) == b"hello"
                assert server_side.recv(100) == b""


def test_replica_behind_a_black_hole_loses_the_last_write(
    proxy: Proxy, direct_client: redis.Redis, tmp_path: Path
) -> None:
    """The master has a lock that the promoted replica lacks. Later the replica catches up."""
    replica = embedded.Valkey(tmp_path, replica_of=("127.0.0.1", proxy.port))
    embedded.kill_at_exit(replica.start())
    try:
        with client_at(replica.port) as replica_client:
            eventually(lambda: _is_linked(replica_client), what="the replica follows", timeout=20)
            direct_client.set("before", 1)
            assert direct_client.wait(1, 5000) == 1
            proxy.black_hole_replication()
            # SET and WAIT use one connection, because WAIT waits only for writes of its connection.
            with client_at(proxy.port).client() as one_connection:
                assert one_connection.set("lock", "A"), "writes of other clients must still pass"
                assert one_connection.wait(1, 300) == 0
            assert _is_linked(replica_client), "the replica's connection must stay open"
            replica.promote()
            assert (replica_client.get("before"), replica_client.get("lock")) == ("1", None)
            assert direct_client.get("lock") == "A"

            replica_client.replicaof("127.0.0.1", str(proxy.port))
            proxy.pass_on()
            eventually(
                lambda: replica_client.get("lock") == "A",
                what="the replica follows again",
                timeout=20,
            )
    finally:
        replica.stop()


def _is_linked(replica: redis.Redis) -> bool:
    """Return whether the replica is connected to its master."""
    return bool(replica.info("replication")["master_link_status"] == "up")


# --- the stop of the proxy ------------------------------------------------------------------------


def test_stopped_proxy_leaves_no_thread_port_or_socket(valkey: embedded.Valkey) -> None:
    """Start and stop a proxy that listens on a port, and a proxy that listens on a Unix socket."""
    threads_before = set(threading.enumerate())
    folder = Path(tempfile.mkdtemp(prefix="oversold-"))  # short, as a socket's path must be
    tcp_proxy = Proxy(("127.0.0.1", valkey.port))
    unix_proxy = Proxy(("127.0.0.1", valkey.port), folder=folder)
    for proxy in (tcp_proxy, unix_proxy):
        proxy.start()
        proxy.start()  # a second start has no effect
    unix_proxy.refuse()  # removes the socket
    unix_proxy.pass_on()  # creates the socket again
    with socket.socket(socket.AF_UNIX) as unix_client:
        unix_client.connect(str(folder / SOCKET_NAME))
        assert ping(unix_client) == b"+PONG\r\n"
    tcp_client = socket.create_connection(("127.0.0.1", tcp_proxy.port), 5)
    with tcp_client:
        tcp_proxy.black_hole()
        tcp_client.sendall(b"PING\r\n")
        eventually(lambda: tcp_proxy.dropped_bytes, what="the black hole has dropped the command")
        for proxy in (tcp_proxy, unix_proxy):
            proxy.stop()
            proxy.stop()  # a second stop has no effect
        assert_cut(tcp_client)
    assert set(threading.enumerate()) <= threads_before
    listen_on(tcp_proxy.port)  # fails if the port is still taken
    folder.rmdir()  # fails if the socket is left in the folder
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        tcp_proxy.cut()


def test_stopped_proxy_cuts_connections_that_it_is_accepting(valkey: embedded.Valkey) -> None:
    """stop() runs just after the clients have connected, so the proxy may not have accepted all."""
    for _ in range(20):
        proxy = Proxy(("127.0.0.1", valkey.port))
        proxy.start()
        clients = [socket.create_connection(("127.0.0.1", proxy.port), 5) for _ in range(20)]
        proxy.stop()
        for client in clients:
            with client:
                assert_cut(client)
