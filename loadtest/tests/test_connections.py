"""The connections of the buyers in a rush, in which many buyers send a request at once.

All buyers wait at a barrier until each of them has arrived, and are then released. A request is
prepared before the release, so that after it only bytes have to be sent. Other tests are about
connections that are reused, and about the clocks of recorded times.
"""

import os
import time
from collections.abc import Iterator
from socket import SHUT_RDWR
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
from loadtest.stack.open_files import raise_file_limit
from loadtest.target.answer import Answer
from loadtest.target.ours import OurShop
from loadtest.target.target import Buyer

#: The highest file descriptor that select() can watch.
LAST_SELECTABLE_FILE = 1023


class StubSession:
    """A stand-in for Locust's FastHttpSession, which has connections and measures requests."""

    base_url = ""

    def __init__(self) -> None:
        self.client = UserAgent(max_retries=0, concurrency=1)

    def request(self, path: str) -> Any:
        """Send a POST. Return an object whose `request_meta` has the times that Locust records."""
        statistics = {"start_time": time.time()}
        started_at = time.perf_counter()
        with self.client.urlopen(
            self.base_url + path, method="POST", payload=b"any=body"
        ) as response:
            assert response.content == b"{}"
        statistics["response_time"] = (time.perf_counter() - started_at) * 1000
        return SimpleNamespace(request_meta=statistics)


class RushAgainstStub:
    """A rush of buyers in this process against a stub server, which answers every request.

    The buyers are released when all of them are at the barrier.

    connection_count    how many connections the server has accepted
    request_statistics  what Locust records of each purchase
    """

    def __init__(self, buyers: int) -> None:
        self.connection_count = 0
        self.request_statistics: list[dict[str, Any]] = []
        self.server = StreamServer(("127.0.0.1", 0), self._serve)
        self.server.start()
        url = f"http://127.0.0.1:{self.server.server_port}"
        plan = RushPlan(hosts=[url], buyers=buyers)
        target = OurShop(Shop(url, token=""), lock="none", product="apple")
        self.local_buyers = local_buyers.LocalBuyers(
            "rush", plan, range(buyers), target, self._handle_message
        )
        self.buyers = [
            self.local_buyers.add_buyer(SimpleNamespace(client=StubSession()))
            for _ in range(buyers)
        ]

    def buy(self, buyer: Buyer) -> Answer:
        """Send a purchase, and add what Locust records of it to `request_statistics`."""
        self.request_statistics.append(buyer.client.request("/buy").request_meta)
        return Answer("sold")

    def send_purchase(self, buyer: Buyer) -> Answer:
        """Let a buyer buy. Its first request waits at the barrier before it is sent."""
        return self.local_buyers.send_purchase(buyer, self.buy)

    def stop(self) -> None:
        """End the rush, and close the buyers' connections and the server."""
        self.local_buyers.end_rush()
        for buyer in self.buyers:
            buyer.client.client.clientpool.close()
        self.server.stop()

    def _handle_message(self, kind: str, **_: Any) -> None:
        if kind == messages.ARRIVED:
            gevent.spawn(self.local_buyers.release, time.monotonic())

    def _serve(self, connection: socket, _: object) -> None:
        self.connection_count += 1
        with connection:
            while connection.recv(4096):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def rush(request: pytest.FixtureRequest) -> Iterator[RushAgainstStub]:
    """Prepare a rush, and stop it at the end. The parameter is the number of buyers."""
    http_client_private.install()
    rush = RushAgainstStub(request.param)
    yield rush
    rush.stop()


@pytest.fixture
def high_descriptors() -> Iterator[None]:
    """Open files, so that the descriptor of the next file is too high for select()."""
    raise_file_limit(LAST_SELECTABLE_FILE + 100, process="this test", advice="skip it")
    files = [os.open(os.devnull, os.O_RDONLY)]
    while files[-1] <= LAST_SELECTABLE_FILE:
        files.append(os.dup(files[0]))
    yield
    for file in files:
        os.close(file)


#: Runs a test with a rush of one buyer, who need not wait for others at the barrier.
one_buyer = pytest.mark.parametrize("rush", [1], indirect=True)


@one_buyer
@pytest.mark.usefixtures("high_descriptors")
def test_connection_is_reused_if_its_descriptor_is_above_1023(rush: RushAgainstStub) -> None:
    """Two requests are sent on one connection, although its file descriptor is above 1023.

    Without http_client_private.install(), geventhttpclient would check the connection with
    select(), which fails for such a descriptor.
    """
    (buyer,) = rush.buyers
    buyer.client.request("/")
    buyer.client.request("/")
    assert rush.connection_count == 1


@one_buyer
def test_connection_closed_by_the_server_is_not_reused(rush: RushAgainstStub) -> None:
    """The connection is closed after the first request, so the second request opens another one."""
    (buyer,) = rush.buyers
    buyer.client.request("/")
    (http_client,) = buyer.client.client.clientpool.clients.values()
    (connection,) = http_client._connection_pool._socket_queue.queue
    connection.shutdown(SHUT_RDWR)  # reading then ends as if the server had closed it
    buyer.client.request("/")
    assert rush.connection_count == 2


@pytest.mark.parametrize("rush", [6], indirect=True)
def test_requests_are_built_before_the_release_and_sent_together(
    rush: RushAgainstStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All six requests are built before the first is sent, and sent before an answer is read.

    Each buyer has opened its connection before the rush, by a request to /warm-up.
    """
    steps: list[str] = []
    send = socket.send
    receive = socket.recv
    take_connection = ConnectionPool.get_socket

    def record_send(self: socket, data: Any, *options: Any, **keywords: Any) -> int:
        if bytes(data).startswith(b"POST /buy"):
            steps.append("bytes sent")
        return int(send(self, data, *options, **keywords))

    def record_receive(self: socket, *options: Any) -> bytes:
        data = bytes(receive(self, *options))
        if data.startswith(b"HTTP"):
            steps.append("answer read")
        return data

    def record_built_request(pool: Any) -> Any:
        steps.append("request built")  # a request takes a connection after it was built
        return take_connection(pool)

    def record_time(key: str, sent_at: int) -> Any:
        steps.append("time recorded")
        return Request(key, sent_at)

    gevent.joinall([gevent.spawn(buyer.client.request, "/warm-up") for buyer in rush.buyers])
    monkeypatch.setattr(local_buyers, "Request", record_time)
    monkeypatch.setattr(socket, "send", record_send)
    monkeypatch.setattr(socket, "recv", record_receive)
    monkeypatch.setattr(ConnectionPool, "get_socket", record_built_request)
    greenlets = [gevent.spawn(rush.send_purchase, buyer) for buyer in rush.buyers]
    gevent.joinall(greenlets, timeout=10, raise_error=True)
    expected_steps = ["request built"] * 6
    expected_steps += ["time recorded", "bytes sent"] * 6
    expected_steps += ["answer read"] * 6
    assert steps == expected_steps


@one_buyer
def test_buyer_waits_at_the_barrier_before_its_first_request_only(rush: RushAgainstStub) -> None:
    """A buyer sends two requests in its first purchase, and one in its second purchase.

    Only the first of the three requests waits at the barrier. The recorded time of a purchase is
    that of its first request.
    """
    (buyer,) = rush.buyers

    def buy_with_two_requests(buyer: Buyer) -> Answer:
        buyer.client.request("/a")
        return rush.buy(buyer)

    rush.local_buyers.send_purchase(buyer, buy_with_two_requests)
    rush.send_purchase(buyer)
    first, second = rush.local_buyers.requests[buyer.key]
    assert first.answered_at is not None
    assert rush.local_buyers.released_at * 1e9 < first.sent_at < first.answered_at < second.sent_at
    assert rush.local_buyers.arrived == 1


@one_buyer
def test_times_in_locust_leave_out_the_wait_at_the_barrier(
    rush: RushAgainstStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this test moves only while the buyer waits at the barrier, by a minute.

    The wait is left out: the request starts at 60 s, and takes 0 s.
    """
    (buyer,) = rush.buyers
    release = local_buyers.LocalBuyers.release
    clock = FakeClock()

    def release_after_a_minute(self: local_buyers.LocalBuyers, at: float) -> None:
        clock.now += 60
        release(self, at)

    monkeypatch.setattr("loadtest.rush.http_client_private.time", clock)
    monkeypatch.setattr("loadtest.tests.test_connections.time", clock)  # for StubSession
    monkeypatch.setattr(local_buyers.LocalBuyers, "release", release_after_a_minute)
    rush.send_purchase(buyer)
    (statistics,) = rush.request_statistics
    assert (statistics["response_time"], statistics["start_time"]) == (0.0, 60.0)


class FakeClock:
    """A clock that only moves when a test sets `now`. It stands in for the module `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    time = perf_counter = monotonic


@pytest.mark.parametrize("rush", [2], indirect=True)
def test_buyer_at_the_barrier_sends_nothing_after_the_rush(rush: RushAgainstStub) -> None:
    """The rush ends while one of two buyers waits for the other one at the barrier.

    The waiting buyer opens no connection and sends no request. It waits until Locust stops it.
    """
    waiting_purchase = gevent.spawn(rush.send_purchase, rush.buyers[0])
    while not rush.local_buyers.arrived:
        gevent.sleep(0)
    rush.local_buyers.end_rush()
    gevent.idle()
    assert rush.connection_count == 0
    assert rush.local_buyers.requests == {}
    assert not waiting_purchase.dead
    waiting_purchase.kill()


@one_buyer
def test_times_are_converted_to_the_coordinators_clock(rush: RushAgainstStub) -> None:
    """The monotonic clock of the buyers' machine is 5 s ahead of the coordinator's.

    The coordinator is the process that opens the sale. It may run on another machine.
    """
    own_offset = messages.measure_clock_offset()
    assert messages.measure_seconds_ahead(own_offset) == 0.0, "a clock is not ahead of itself"
    coordinators_offset = own_offset + 5
    assert messages.measure_seconds_ahead(coordinators_offset) == pytest.approx(5, abs=0.001)
    request = Request("a", sent_at=7_000_000_000, answered_at=8_000_000_000)
    packed_request = Request(*messages.pack_request(request, seconds_ahead=5.0))
    assert packed_request.sent_at == 2_000_000_000
    assert packed_request.answered_at == 3_000_000_000
    rush.local_buyers.seconds_ahead = 5.0
    rush.local_buyers.release(1.0)  # in seconds of the coordinator's clock
    assert rush.local_buyers.released_at == 6.0
