"""A real asgi node: a waiting buyer has no thread, and SIGTERM answers all of them."""

import http.client
import json
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from locks import RedisLock
from servers.valkey import Valkey
from shop.tests.node import Node, node_at
from shop.tests.purchases import eventually

WAITING = 150
WAITING_FOR_THE_TABLE = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest.fixture(scope="module")
def node(folder: Path, valkey: Valkey) -> Iterator[Node]:
    log = folder / "asgi.log"
    with node_at(log, valkey=valkey, WEB_SERVER="asgi", WEB_THREADS="4") as node:
        yield node


@contextmanager
def taken(valkey: Valkey) -> Iterator[RedisLock]:
    """Hold the apple's lock for the block."""
    with redis.Redis(port=valkey.port, db=1) as client:
        lock = RedisLock(client, "redis:apple", ttl=30)
        with lock.hold(wait=5):
            yield lock


def sent(node: Node, number: int) -> socket.socket:
    """A connection on which a purchase under `redis` was sent."""
    body = json.dumps({"buyer": f"b{number}", "lock": "redis"}).encode()
    client = connected(node)
    client.sendall(
        b"POST /buy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    return client


def connected(node: Node) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=30)


def status_of(client: socket.socket) -> int:
    answer = http.client.HTTPResponse(client)
    answer.begin()
    answer.read()
    return answer.status


def threads_of(node: Node) -> int:
    return sum(psutil.Process(each.pid).num_threads() for each in node.processes())


def test_buyers_who_wait_have_no_thread_and_all_are_answered(node: Node, valkey: Valkey) -> None:
    """One in a thread each would be more than WAITING threads, or more than WEB_THREADS unheard."""
    sale = node.restock(WAITING - 1)
    before = threads_of(node)
    with ExitStack() as buyers:
        with taken(valkey) as lock:
            clients = [buyers.enter_context(sent(node, n)) for n in range(WAITING)]
            eventually(lambda: len(lock.inspect().waiters) == WAITING, what="all wait", timeout=30)
            assert threads_of(node) - before < 20
            assert node.get("/healthz")[0] == 200
        answers = Counter(status_of(client) for client in clients)
    assert answers == {201: WAITING - 1, 409: 1}
    assert node.get(f"/sales/{sale}")[1]["lost_updates"] == 0


def test_a_client_that_leaves_while_it_waits_leaves_no_waiter(node: Node, valkey: Valkey) -> None:
    """Else it would get the lock, and a unit that nobody hears of."""
    sale = node.restock(5)
    with taken(valkey) as lock:
        gone, stays = sent(node, 0), sent(node, 1)
        eventually(lambda: len(lock.inspect().waiters) == 2, what="both wait", timeout=30)
        gone.close()
        eventually(lambda: len(lock.inspect().waiters) == 1, what="one has left", timeout=30)
    with stays:
        assert status_of(stays) == 201
    assert [order["buyer"] for order in node.orders(sale)] == ["b1"]


def test_waiting_threads_do_not_block_a_holder(node: Node, valkey: Valkey) -> None:
    """With one pool for all, the buyers of `token` who wait would have every thread."""
    with redis.Redis(port=valkey.port, db=1) as client, ThreadPoolExecutor(8) as crowd:
        node.restock(10)
        client.set("lock:token:apple", "somebody")
        body = b'{"buyer": "slow", "lock": "token"}'
        waiting = [crowd.submit(node.ask, "POST", "/buy", body) for _ in range(8)]
        assert node.ask("POST", "/buy", b'{"buyer": "ada", "lock": "redis"}')[0] == 201
        assert not all(each.done() for each in waiting), "nobody waited: this shows nothing"
        client.delete("lock:token:apple")
        assert Counter(each.result()[0] for each in waiting) == {201: 8}


def test_a_page_whose_client_is_gone_gives_its_connection_back(node: Node) -> None:
    """Left in a thread that has ended it would be lost to the pool, and the node with the last."""
    node.restock(5)
    size = int(node.environment["SHOP_DB_POOL"])
    with psycopg.connect(node.environment["DATABASE_URL"]) as other:
        with other.transaction():
            other.execute("LOCK TABLE product IN ACCESS EXCLUSIVE MODE")
            with ExitStack() as clients:
                for _ in range(size):
                    client = clients.enter_context(connected(node))
                    client.sendall(b"GET /sales/latest HTTP/1.1\r\nHost: localhost\r\n\r\n")
                eventually(
                    lambda: other.execute(WAITING_FOR_THE_TABLE).fetchone() == (size,),
                    what="all wait for the table",
                )
            assert node.get("/healthz")[0] == 200  # it has noticed by now that they are gone
        assert node.get("/sales/latest")[0] == 200


#: A body that is too large, and what is sent of an endless one at most.
MEGABYTE = 1_000_000
ENDLESS_BYTES = 64 * MEGABYTE
TO_BUY = "POST /buy HTTP/1.1\r\nHost: localhost\r\n"
HEADS = {
    "announced": TO_BUY + "Content-Length: {}\r\n\r\n",
    "elsewhere": TO_BUY.replace("/buy", "/nothing") + "Content-Length: {}\r\n\r\n",
    "chunked": TO_BUY + "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n",
}


def temporary_bytes(node: Node) -> int:
    """Return the size of all deleted files that the node has open."""
    total_bytes = 0
    for process in node.processes():
        for file in Path(f"/proc/{process.pid}/fd").glob("*"):
            # The node may close a file between the listing and the look at it.
            with suppress(FileNotFoundError):
                if str(file.readlink()).endswith(" (deleted)"):
                    total_bytes += file.stat().st_size
    return total_bytes


@pytest.mark.parametrize("kind", HEADS)
def test_large_body_is_413_in_json(node: Node, kind: str) -> None:
    with connected(node) as client:
        client.sendall(HEADS[kind].format(MEGABYTE).encode() + bytes(MEGABYTE))
        client.sendall(b"\r\n0\r\n\r\n" if kind == "chunked" else b"")
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert (answer.status, answer.headers["Connection"]) == (413, "close")
        assert len(answer.headers["X-Request-ID"]) == 32
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert json.loads(answer.read()) == {
            "outcome": "error",
            "error": "the body is too large",
            "allowed": ["16384 bytes"],
        }


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads open files from /proc")
@pytest.mark.parametrize("kind", HEADS)
def test_endless_body_is_cut_off_and_kept_nowhere(node: Node, kind: str) -> None:
    before = temporary_bytes(node)
    sent = 0
    is_cut_off = False
    with connected(node) as client:
        client.sendall(HEADS[kind].format(10**10).encode())
        while not is_cut_off and sent < ENDLESS_BYTES:
            try:
                sent += client.send(bytes(MEGABYTE))
            except ConnectionError:
                is_cut_off = True
            assert temporary_bytes(node) - before < MEGABYTE
    assert is_cut_off
    assert node.get("/healthz")[0] == 200


@pytest.mark.parametrize("path", ["/buy", "/restock"])
def test_slow_body_is_408(node: Node, path: str) -> None:
    with connected(node) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert status_of(client) == 408


def test_sigterm_answers_all_who_wait_and_sells_nothing_after(node: Node, valkey: Valkey) -> None:
    """Runs last: the node is gone."""
    node.restock(100)
    process = node.process
    with ExitStack() as buyers:
        with taken(valkey) as lock:
            clients = [buyers.enter_context(sent(node, n)) for n in range(20)]
            eventually(lambda: len(lock.inspect().waiters) == 20, what="all wait", timeout=30)
            process.send_signal(signal.SIGTERM)
            eventually(lambda: not accepts(node), what="it accepts nobody", timeout=10)
            assert process.poll() is None
        assert Counter(status_of(client) for client in clients) == {201: 20}
    assert process.wait(10) == 0


def accepts(node: Node) -> bool:
    try:
        socket.create_connection(("127.0.0.1", node.port), timeout=0.2).close()
    except OSError:
        return False
    return True
