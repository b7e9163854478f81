"""A released buyer only has to send its request: all else is done before the release."""

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from gevent.server import StreamServer
from gevent.socket import socket
from geventhttpclient.connectionpool import ConnectionPool
from geventhttpclient.useragent import UserAgent

from loadtest.judge.intervals import Request
from loadtest.rush import http_client_private, local_buyers, messages
from loadtest.rush.plan import RushPlan
from loadtest.stack.client import Shop
from loadtest.stack.open_files import allow_connections
from loadtest.target.answer import Answer
from loadtest.target.ours import OurShop
from loadtest.target.target import Buyer

#: The last file that select() knows.
LAST = 1023


class Session:
    """The part of Locust's FastHttpSession that has connections and counts requests."""

    base_url = ""

    def __init__(self) -> None:
        self.client = UserAgent(max_retries=0, concurrency=1)

    def request(self, path: str) -> Any:
        counted = {"start_time": time.time()}
        url, began = self.base_url + path, time.perf_counter()
        with self.client.urlopen(url, method="POST", payload=b"a=1") as response:
            assert response.content == b"{}"
        counted["response_time"] = (time.perf_counter() - began) * 1000
        return SimpleNamespace(request_meta=counted)


class Rush:
    """A server that answers at once, and the buyers of one crowd; they are released when all are
    at the barrier.

    connections  how many the server accepted
    counted      what Locust counts of each request
    """

    def __init__(self, buyers: int) -> None:
        self.connections = 0
        self.counted: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.server = StreamServer(("127.0.0.1", 0), self._serve)
        self.server.start()
        url = f"http://127.0.0.1:{self.server.server_port}"
        plan = RushPlan(hosts=[url], buyers=buyers)
        target = OurShop(Shop(url, token=""), lock="none", product="apple")
        self.local_buyers = local_buyers.LocalBuyers(
            "rush", plan, range(buyers), target, self._hear
        )
        self.buyers = [
            self.local_buyers.add_buyer(SimpleNamespace(client=Session())) for _ in range(buyers)
        ]

    def buy(self, me: Buyer) -> Answer:
        self.counted.append(me.client.request("/buy").request_meta)
        return Answer("sold")

    def ask(self, me: Buyer) -> Answer:
        return self.local_buyers.ask(me, self.buy)

    def stop(self) -> None:
        self.local_buyers.close()
        for me in self.buyers:
            me.client.client.clientpool.close()
        self.server.stop()

    def _hear(self, kind: str, **_: Any) -> None:
        if kind == messages.ARRIVED:
            gevent.spawn(self.local_buyers.release, time.monotonic())

    def _serve(self, connection: socket, _: object) -> None:
        self.connections += 1
        with connection:
            while connection.recv(4096):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def rush(request: pytest.FixtureRequest) -> Iterator[Rush]:
    http_client_private.install()
    running = Rush(request.param)
    yield running
    running.stop()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Open all files that select() can watch, so that new ones have higher numbers."""
    allow_connections(LAST + 100, process="this test", advice="skip it")
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] <= LAST:
        opened.append(os.dup(opened[0]))
    yield
    for file in opened:
        os.close(file)


alone = pytest.mark.parametrize("rush", [1], indirect=True)


@alone
@pytest.mark.usefixtures("many_files")
def test_connection_above_file_1023_is_kept(rush: Rush) -> None:
    (me,) = rush.buyers
    me.client.request("/")
    me.client.request("/")
    assert rush.connections == 1


@alone
def test_connection_closed_by_the_server_is_not_reused(rush: Rush) -> None:
    (me,) = rush.buyers
    me.client.request("/")
    (pool,) = [
        http_client._connection_pool for http_client in me.client.client.clientpool.clients.values()
    ]
    pool._socket_queue.queue[0].shutdown(2)
    me.client.request("/")
    assert rush.connections == 2


@pytest.mark.parametrize("rush", [6], indirect=True)
def test_released_buyer_sends_its_bytes_at_once(
    rush: Rush, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    send, receive, build = socket.send, socket.recv, ConnectionPool.get_socket

    def sent(self: socket, data: Any, *options: Any, **keywords: Any) -> int:
        if bytes(data).startswith(b"POST /buy"):
            happened.append("bytes")
        return int(send(self, data, *options, **keywords))

    def received(self: socket, *options: Any) -> bytes:
        data = bytes(receive(self, *options))
        if data.startswith(b"HTTP"):
            happened.append("answer")
        return data

    def built(pool: Any) -> Any:
        happened.append("built")
        return build(pool)

    def moment(key: str, now: int) -> Any:
        happened.append("moment")
        return Request(key, now)

    gevent.joinall([gevent.spawn(me.client.request, "/warm") for me in rush.buyers])
    monkeypatch.setattr(local_buyers, "Request", moment)
    monkeypatch.setattr(socket, "send", sent)
    monkeypatch.setattr(socket, "recv", received)
    monkeypatch.setattr(ConnectionPool, "get_socket", built)
    greenlets = [gevent.spawn(rush.ask, me) for me in rush.buyers]
    gevent.joinall(greenlets, timeout=10, raise_error=True)
    assert happened == ["built"] * 6 + ["moment", "bytes"] * 6 + ["answer"] * 6


@alone
def test_each_buyer_has_one_wait_and_each_purchase_one_moment(rush: Rush) -> None:
    (me,) = rush.buyers

    def buy(me: Buyer) -> Answer:
        me.client.request("/a")
        return rush.buy(me)

    rush.local_buyers.ask(me, buy)
    rush.ask(me)
    first, again = rush.local_buyers.requests[me.key]
    assert first.answered_at is not None
    assert rush.local_buyers.released_at * 1e9 < first.sent_at < first.answered_at < again.sent_at
    assert rush.local_buyers.arrived == 1


@alone
def test_locust_counts_a_request_without_its_wait_at_the_barrier(
    rush: Rush, monkeypatch: pytest.MonkeyPatch
) -> None:
    (me,) = rush.buyers
    late = local_buyers.LocalBuyers.release

    def release(self: local_buyers.LocalBuyers, at: float) -> None:
        clock.now += 60
        late(self, at)

    clock = Clock()
    monkeypatch.setattr("loadtest.rush.http_client_private.time", clock)
    monkeypatch.setattr("loadtest.tests.test_connections.time", clock)
    monkeypatch.setattr(local_buyers.LocalBuyers, "release", release)
    rush.ask(me)
    (counted,) = rush.counted
    assert (counted["response_time"], counted["start_time"]) == (0.0, 60.0)


class Clock:
    """A clock that stands still unless a test moves it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    time = perf_counter = monotonic


@pytest.mark.parametrize("rush", [2], indirect=True)
def test_unreleased_buyers_send_nothing_after_the_end(rush: Rush) -> None:
    me = rush.buyers[0]
    buyer = gevent.spawn(rush.ask, me)
    while not rush.local_buyers.arrived:
        gevent.sleep(0)
    rush.local_buyers.close()
    gevent.idle()
    assert (rush.connections, rush.local_buyers.requests, buyer.dead) == (0, {}, False)
    buyer.kill()


@alone
def test_times_are_converted_to_the_coordinators_clock(
    rush: Rush,
) -> None:
    assert messages.seconds_ahead(messages.measure_clock_offset()) == 0.0
    assert messages.seconds_ahead(messages.measure_clock_offset() + 5) == pytest.approx(
        5, abs=0.001
    )
    request = Request("a", 7_000_000_000, 8_000_000_000)
    assert messages.pack_request(request, ahead=5.0)[1:3] == [2_000_000_000, 3_000_000_000]
    rush.local_buyers.ahead, rush.buyers = 5.0, []
    rush.local_buyers.release(1.0)
    assert rush.local_buyers.released_at == 6.0
