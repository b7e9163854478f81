"""A node that is stopped: every purchase that was sent to it is answered, and none is reset."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from loadtest.http import restarts, slow_clients
from loadtest.http.slow_clients import connected, get, outcome_of, post_buy
from loadtest.stack.node import Node
from loadtest.stack.stack import SERVERS, Stack
from loadtest.tests.attacked import attacked_stack

SENT = 100
ROUNDS = 2


@pytest.fixture(scope="module", params=SERVERS)
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    with (
        tempfile.TemporaryFile() as log,
        attacked_stack(lock_wait=6, workers=2, log=log, server=request.param) as stack,
    ):
        yield stack


@pytest.fixture
def node(stack: Stack) -> Iterator[Node]:
    """The node, started again after the test."""
    yield stack.nodes[0]
    start_again(stack)


def start_again(stack: Stack) -> None:
    node = stack.nodes[0]
    node.stop(15)
    node.start()
    node.wait_until_ready(stack.shop())


@contextmanager
def workers_stopped(node: Node) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end of the block: whatever comes in meanwhile waits in the
    kernel's queue."""
    assert node.process is not None
    workers = psutil.Process(node.process.pid).children()
    for worker in workers:
        worker.suspend()
    try:
        yield
    finally:
        for worker in workers:
            worker.resume()


def purchases(lock: str = "redis") -> list[bytes]:
    unique = f"{os.getpid()}-{time.monotonic_ns()}"
    return [
        post_buy({"buyer": f"b{n}", "lock": lock}, close=True, key=f"{unique}-{n}")
        for n in range(SENT)
    ]


def test_a_purchase_that_nobody_has_accepted_yet_is_answered(stack: Stack, node: Node) -> None:
    """Without it the kernel resets what is in its queue when the last worker ends."""
    sale = stack.shop().restock(product="apple", stock=1000)["sale"]
    assert node.process is not None
    with ExitStack() as everything:
        with workers_stopped(node):
            clients = everything.enter_context(connected(node.port, SENT))
            for client, purchase in zip(clients, purchases(), strict=True):
                client.sendall(purchase)
            node.process.send_signal(signal.SIGTERM)
        answers = slow_clients.read_until_closed(clients, timeout=20)
    assert [outcome_of(answer) for answer in answers] == ["sold"] * SENT
    assert node.process.wait(15) == 0
    start_again(stack)
    assert stack.shop().sale(sale)["orders"] == SENT


def test_a_purchase_on_a_kept_connection_is_answered_after_sigterm_and_the_connection_ends(
    stack: Stack, node: Node
) -> None:
    stack.shop().restock(product="apple", stock=1000)
    assert node.process is not None
    with connected(node.port, SENT) as kept:
        for client in kept:
            client.sendall(get("/healthz"))
            assert b"connection: close" not in slow_clients.read_answer(client).lower()
        node.process.send_signal(signal.SIGTERM)
        wait_until_refused(node)
        for client, purchase in zip(kept, purchases(), strict=True):
            client.sendall(purchase.replace(b"Connection: close\r\n", b""))
        answers = slow_clients.read_until_closed(kept, timeout=20)
    assert [outcome_of(answer) for answer in answers] == ["sold"] * SENT
    assert all(b"Connection: close" in answer for answer in answers)


@pytest.mark.skipif(sys.platform != "linux", reason="handshakes cannot be stopped there")
def test_before_the_port_closes_nobody_new_gets_in(node: Node) -> None:
    """Who got in at the last moment would be reset with the port, and its purchase with it."""
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    seen = [connecting(node.port)]
    while seen[-1] != "refused":
        seen.append(connecting(node.port))
    taken, dropped = seen.count("taken"), seen.count("dropped")
    assert seen == ["taken"] * taken + ["dropped"] * dropped + ["refused"]
    assert dropped


def test_a_reload_turns_nobody_away(stack: Stack, node: Node) -> None:
    """The workers that end then have the same socket as those that go on."""
    assert node.process is not None
    before = set(psutil.Process(node.process.pid).children())
    node.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    seen = set()
    while before & set(psutil.Process(node.process.pid).children()):
        assert time.monotonic() < deadline, "the old workers do not end"
        seen.add(connecting(node.port))
    assert seen == {"taken"}
    assert slow_clients.whole_answer(node.port, slow_clients.HEALTH).startswith(b"HTTP/1.1 200 ")


def test_a_stopping_node_is_not_ready_but_alive(stack: Stack, node: Node) -> None:
    """A balancer that has a connection open learns of it; an orchestrator does not kill it."""
    assert node.process is not None
    with connected(node.port, 2) as (balancer, orchestrator):
        for probe in (balancer, orchestrator):
            probe.sendall(get("/healthz"))
            slow_clients.read_answer(probe)
        node.process.send_signal(signal.SIGTERM)
        wait_until_refused(node)
        balancer.sendall(get("/readyz"))
        orchestrator.sendall(get("/healthz"))
        ready, alive = map(slow_clients.read_answer, (balancer, orchestrator))
    assert ready.startswith(b"HTTP/1.1 503 ")
    assert b'"stopping"' in ready
    assert alive.startswith(b"HTTP/1.1 200 ")


def test_a_purchase_without_a_thread_is_refused_in_time_and_not_forgotten(
    stack: Stack, node: Node
) -> None:
    """Each of those in front of it may wait for the lock until the node has to be gone. `token`:
    its waiters have a thread on a node of an event loop too."""
    sale = stack.shop().restock(product="apple", stock=1000)["sale"]
    assert node.process is not None
    slow = {"buyer": "slow", "lock": "token", "hold_ms": 1500}
    with slow_clients.Crowd("slow", 400, post_buy(slow, close=True)).at(node.port) as clients:
        until_in_flight(node.port)
        node.process.send_signal(signal.SIGTERM)
        answers = slow_clients.read_until_closed(clients, timeout=20)
        outcomes = [outcome_of(answer) for answer in answers]
    assert set(outcomes) == {"sold", "busy", "unavailable"}
    assert outcomes.count("unavailable") >= 150
    start_again(stack)
    assert stack.shop().sale(sale)["orders"] == outcomes.count("sold")


def test_restarts_under_load_lose_no_purchase(stack: Stack) -> None:
    """Again and again, on new connections and on kept ones: no reset, no purchase without an
    answer, and as many orders as were answered `sold`."""
    sale = stack.shop().restock(product="apple", stock=1_000_000)["sale"]
    with restarts.Customers(stack.nodes[0].port) as customers:
        for _ in range(ROUNDS):
            sold = customers.count("sold")
            deadline = time.monotonic() + 20
            while customers.count("sold") < sold + SENT:
                assert time.monotonic() < deadline, "nobody buys"
                time.sleep(0.02)
            start_again(stack)
    assert customers.lost == {}
    assert set(customers.outcomes.values()) == {"sold"}
    orders = stack.shop().orders(sale)
    assert {order["key"] for order in orders} == set(customers.outcomes)
    assert len(orders) >= ROUNDS * SENT


def connecting(port: int) -> str:
    """What becomes of an attempt to connect, which takes no time but where it is not answered."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.1).close()
    except TimeoutError:
        return "dropped"
    except ConnectionRefusedError:
        return "refused"
    return "taken"


def wait_until_refused(node: Node) -> None:
    """Until the node has closed its listener."""
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", node.port), 0.5).close()
        except OSError:
            return
        assert time.monotonic() < deadline, "the node takes connections still"
        time.sleep(0.05)


def until_in_flight(port: int) -> None:
    """Until the node has read what was sent to it before: it answers in the order of arrival."""
    slow_clients.whole_answer(port, slow_clients.HEALTH)
