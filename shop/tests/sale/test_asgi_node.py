"""A node with an event loop (WEB_SERVER=asgi), as a real process.

Buyers wait for the lock without threads, and are served even after a SIGTERM. A client that
disconnects loses its place in the queue, and its database connection returns to the pool. A request
body that is too large or too slow is refused.
"""

import http.client
import json
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import redis

from locks import RedisLock
from servers.valkey import Valkey
from shop.tests.node import Node, make_node
from shop.tests.purchases import eventually

WAITING_BUYERS = 150
#: Threads of the node for strategies whose buyers wait in a thread.
NODE_THREADS = 4
COUNT_STATEMENTS_THAT_WAIT = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest.fixture(scope="module")
def node(folder: Path, valkey: Valkey) -> Iterator[Node]:
    """A node with an event loop. All tests of this module use the same node."""
    log = folder / "asgi.log"
    with make_node(log, valkey=valkey, WEB_SERVER="asgi", WEB_THREADS=str(NODE_THREADS)) as node:
        yield node


@contextmanager
def hold_lock(valkey: Valkey) -> Iterator[RedisLock]:
    """Hold the lock under which the strategy `redis` sells apples, until the block ends."""
    with redis.Redis(port=valkey.port, db=1) as client:
        lock = RedisLock(client, "redis:apple", ttl=30)
        with lock.hold(wait=5):
            yield lock


def send_purchase(node: Node, number: int) -> socket.socket:
    """Send a purchase of buyer `b<number>` under `redis`, and return the connection.

    This does not wait for the response: read_status() does.
    """
    body = json.dumps({"buyer": f"b{number}", "lock": "redis"}).encode()
    client = connect(node)
    client.sendall(
        b"POST /buy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    return client


def connect(node: Node) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=30)


def read_status(client: socket.socket) -> int:
    """Wait for the HTTP response on a connection, and return its status."""
    response = http.client.HTTPResponse(client)
    response.begin()
    response.read()
    return response.status


def count_threads(node: Node) -> int:
    return sum(process.num_threads() for process in node.find_processes())


def accepts_connections(node: Node) -> bool:
    try:
        socket.create_connection(("127.0.0.1", node.port), timeout=0.2).close()
    except OSError:
        return False
    return True


def test_waiting_buyers_need_no_threads(node: Node, valkey: Valkey) -> None:
    """Far more buyers than NODE_THREADS wait for the lock at once, and all of them are answered.

    There is one unit less than there are buyers, so the last one gets 409.
    """
    sale = node.restock(WAITING_BUYERS - 1)
    threads_before = count_threads(node)
    with ExitStack() as buyers:
        with hold_lock(valkey) as lock:
            clients = [
                buyers.enter_context(send_purchase(node, number))
                for number in range(WAITING_BUYERS)
            ]
            eventually(
                lambda: len(lock.inspect().waiters) == WAITING_BUYERS,
                what="all buyers wait",
                timeout=30,
            )
            assert count_threads(node) - threads_before < 20  # far fewer than WAITING_BUYERS
            assert node.get("/healthz")[0] == 200
        statuses = Counter(read_status(client) for client in clients)
    assert statuses == {201: WAITING_BUYERS - 1, 409: 1}
    assert node.get(f"/sales/{sale}")[1]["lost_updates"] == 0


def test_buyer_leaves_the_queue_if_the_client_disconnects(node: Node, valkey: Valkey) -> None:
    """A buyer whose client has disconnected leaves the queue for the lock, and buys nothing.

    Otherwise the absent buyer would get the lock and a unit, but no response.
    """
    sale = node.restock(5)
    with hold_lock(valkey) as lock:
        leaving_client = send_purchase(node, 0)
        staying_client = send_purchase(node, 1)
        eventually(lambda: len(lock.inspect().waiters) == 2, what="both buyers wait", timeout=30)
        leaving_client.close()
        eventually(lambda: len(lock.inspect().waiters) == 1, what="one buyer has left", timeout=30)
    with staying_client:
        assert read_status(staying_client) == 201
    assert [order["buyer"] for order in node.read_orders(sale)] == ["b1"]


def test_waiting_threads_do_not_block_a_holder(node: Node, valkey: Valkey) -> None:
    """Buyers under `token` wait in all threads of one pool, and a buyer under `redis` still buys.

    The threads in which a holder of the lock of `redis` sells belong to another pool.
    """
    waiting_count = 2 * NODE_THREADS
    with redis.Redis(port=valkey.port, db=1) as client, ThreadPoolExecutor(waiting_count) as pool:
        node.restock(10)
        client.set("lock:token:apple", "another-buyer")
        body = b'{"buyer": "slow", "lock": "token"}'
        purchases = [
            pool.submit(node.request_json, "POST", "/buy", body) for _ in range(waiting_count)
        ]
        assert node.request_json("POST", "/buy", b'{"buyer": "ada", "lock": "redis"}')[0] == 201
        assert not all(purchase.done() for purchase in purchases), "a buyer should still wait"
        client.delete("lock:token:apple")
        assert Counter(purchase.result()[0] for purchase in purchases) == {201: waiting_count}


def test_connection_returns_to_the_pool_after_a_disconnect(node: Node) -> None:
    """Clients request a report, and disconnect while the node's queries wait for a locked table.

    There are as many requests as connections in the pool. If they did not return their connections,
    the last request would get none.
    """
    node.restock(5)
    pool_size = int(node.environment["SHOP_DB_POOL"])
    with psycopg.connect(node.environment["DATABASE_URL"]) as locking_connection:
        with locking_connection.transaction():
            locking_connection.execute("LOCK TABLE product IN ACCESS EXCLUSIVE MODE")
            with ExitStack() as clients:
                for _ in range(pool_size):
                    client = clients.enter_context(connect(node))
                    client.sendall(b"GET /sales/latest HTTP/1.1\r\nHost: localhost\r\n\r\n")

                def all_requests_wait() -> bool:
                    row = locking_connection.execute(COUNT_STATEMENTS_THAT_WAIT).fetchone()
                    return row == (pool_size,)

                eventually(all_requests_wait, what="all requests wait for the table")
            # When the node answers this request, it has noticed that the clients are gone.
            assert node.get("/healthz")[0] == 200
        assert node.get("/sales/latest")[0] == 200


MEGABYTE = 1_000_000
#: A client stops here. The test then fails, because the node should have refused the body earlier.
MAX_SENT_BYTES = 64 * MEGABYTE
BUY_HEAD = "POST /buy HTTP/1.1\r\nHost: localhost\r\n"
#: Kind of a request -> its request line and headers. `{}` stands for the size of the body in bytes.
REQUEST_HEADS = {
    "announced": BUY_HEAD + "Content-Length: {}\r\n\r\n",
    "to an unknown path": BUY_HEAD.replace("/buy", "/nothing") + "Content-Length: {}\r\n\r\n",
    "chunked": BUY_HEAD + "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n",
}


def count_temporary_bytes(node: Node) -> int:
    """Return the size of the node's temporary files, which are open but already deleted."""
    total_bytes = 0
    for process in node.find_processes():
        for file in Path(f"/proc/{process.pid}/fd").glob("*"):
            # The node may close a file after it was listed.
            with suppress(FileNotFoundError):
                if str(file.readlink()).endswith(" (deleted)"):
                    total_bytes += file.stat().st_size
    return total_bytes


@pytest.mark.parametrize("head", REQUEST_HEADS)
def test_large_body_is_413_in_json(node: Node, head: str) -> None:
    """The client sends a body of a megabyte.

    head  a key of REQUEST_HEADS: how the client announces the size
    """
    with connect(node) as client:
        client.sendall(REQUEST_HEADS[head].format(MEGABYTE).encode() + bytes(MEGABYTE))
        if head == "chunked":
            client.sendall(b"\r\n0\r\n\r\n")  # the end of the chunk, and the last chunk
        response = http.client.HTTPResponse(client)
        response.begin()
        assert (response.status, response.headers["Connection"]) == (413, "close")
        assert len(response.headers["X-Request-ID"]) == 32
        assert response.headers["X-Frame-Options"] == "DENY"
        assert json.loads(response.read()) == {
            "outcome": "error",
            "error": "the body is too large",
            "allowed": ["16384 bytes"],
        }


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads open files from /proc")
@pytest.mark.parametrize("head", REQUEST_HEADS)
def test_endless_body_is_cut_off_and_not_stored(node: Node, head: str) -> None:
    """The client announces a body of 10 GB, and sends it until the node closes the connection.

    Meanwhile the node's temporary files stay smaller than a megabyte.

    head  a key of REQUEST_HEADS: how the client announces the size
    """
    bytes_before = count_temporary_bytes(node)
    sent_bytes = 0
    is_cut_off = False
    with connect(node) as client:
        client.sendall(REQUEST_HEADS[head].format(10**10).encode())
        while not is_cut_off and sent_bytes < MAX_SENT_BYTES:
            try:
                sent_bytes += client.send(bytes(MEGABYTE))
            except ConnectionError:
                is_cut_off = True
            assert count_temporary_bytes(node) - bytes_before < MEGABYTE
    assert is_cut_off
    assert node.get("/healthz")[0] == 200


@pytest.mark.parametrize("path", ["/buy", "/restock"])
def test_slow_body_is_408(node: Node, path: str) -> None:
    """The client announces a body of nine bytes, sends one, and then waits for the response."""
    with connect(node) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert read_status(client) == 408


def test_sigterm_answers_all_waiting_buyers(node: Node, valkey: Valkey) -> None:
    """After SIGTERM the node accepts no connection, but sells to the buyers who already wait.

    This test stops the node that all tests of the module use, so it must be the last one.
    """
    buyer_count = 20
    node.restock(100)
    process = node.process
    with ExitStack() as buyers:
        with hold_lock(valkey) as lock:
            clients = [
                buyers.enter_context(send_purchase(node, number)) for number in range(buyer_count)
            ]
            eventually(
                lambda: len(lock.inspect().waiters) == buyer_count,
                what="all buyers wait",
                timeout=30,
            )
            process.send_signal(signal.SIGTERM)
            eventually(
                lambda: not accepts_connections(node),
                what="the node accepts no connection",
                timeout=10,
            )
            assert process.poll() is None
        assert Counter(read_status(client) for client in clients) == {201: buyer_count}
    assert process.wait(10) == 0
