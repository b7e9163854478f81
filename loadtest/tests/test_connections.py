"""What is left to do for a buyer when it is released: to send."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent.server import StreamServer
from gevent.socket import socket
from geventhttpclient.useragent import UserAgent

from loadtest.judge.intervals import Request
from loadtest.rush.connections import watch
from loadtest.rush.crowd import Crowd
from loadtest.rush.open_files import allow
from loadtest.rush.purchase import Over, Purchase
from loadtest.target.errors import TargetError
from loadtest.tests.in_memory import Staged

#: The last file that select() knows.
LAST = 1023


class Session:
    """As much of Locust's FastHttpSession as has connections."""

    def __init__(self, url: str) -> None:
        self.client = UserAgent(max_retries=0, concurrency=1)
        self.url = url

    def post(self, path: str = "/buy") -> Any:
        with self.client.urlopen(self.url + path, method="POST", payload=b"a=1") as response:
            return response.content


class Answering:
    """A server that answers at once, and sessions with it; `connections`: how many it accepted."""

    def __init__(self) -> None:
        self.connections = 0
        self._sessions: list[Session] = []
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def session(self) -> Session:
        self._sessions.append(Session(self.url))
        return self._sessions[-1]

    def stop(self) -> None:
        for session in self._sessions:
            session.client.clientpool.close()
        self._server.stop()

    def _serve(self, connection: socket, _: object) -> None:
        self.connections += 1
        with connection:
            while connection.recv(4096):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def server() -> Iterator[Answering]:
    running = Answering()
    yield running
    running.stop()


@pytest.fixture
def many_files() -> Iterator[None]:
    """All files that select() knows are open."""
    allow(LAST + 100, what="this test", otherwise="skip it")
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] <= LAST:
        opened.append(os.dup(opened[0]))
    yield
    for file in opened:
        os.close(file)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(("prepare", "connections"), [(watch, 1), (lambda session: None, 2)])
def test_a_connection_above_file_1023_is_kept_and_geventhttpclient_alone_makes_a_new_one(
    server: Answering, prepare: Callable[[Any], None], connections: int
) -> None:
    session = server.session()
    prepare(session)
    assert [session.post(), session.post()] == [b"{}", b"{}"]
    assert server.connections == connections


def test_a_connection_that_the_server_has_ended_is_not_used_again(server: Answering) -> None:
    session = server.session()
    watch(session)
    session.post()
    (pool,) = [one._connection_pool for one in session.client.clientpool.clients.values()]
    pool._socket_queue.queue[0].shutdown(2)
    assert (session.post(), server.connections) == (b"{}", 2)


def test_when_a_buyer_is_released_nothing_comes_between_its_moment_and_its_bytes(
    server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    send, receive = socket.send, socket.recv

    def sent(self: socket, data: Any, *options: Any, **more: Any) -> int:
        if bytes(data).startswith(b"POST /buy"):
            happened.append("bytes")
        return int(send(self, data, *options, **more))

    def received(self: socket, *options: Any) -> bytes:
        data = bytes(receive(self, *options))
        if data.startswith(b"HTTP"):
            happened.append("answer")
        return data

    staged = Staged(buyers=6, count=1)
    crowd = staged.crowd(0)
    buyers = [Rushed(crowd, server, number) for number in range(6)]
    gevent.joinall([gevent.spawn(buyer.session.post, "/warm") for buyer in buyers])
    monkeypatch.setattr(socket, "send", sent)
    monkeypatch.setattr(socket, "recv", received)
    ask = crowd.ask

    def asked(key: str) -> Any:
        happened.append("moment")
        return ask(key)

    monkeypatch.setattr(crowd, "ask", asked)
    gevent.joinall([gevent.spawn(buyer.buy) for buyer in buyers], timeout=10)
    assert happened == ["moment", "bytes"] * 6 + ["answer"] * 6


class Rushed:
    """A buyer with a connection, and its purchase."""

    def __init__(self, crowd: Crowd, server: Answering, number: int) -> None:
        self.session = server.session()
        self.purchase = Purchase(crowd, crowd.key(number))
        watch(self.session, self.purchase.ready)

    def buy(self) -> tuple[Request, Any]:
        return self.purchase.send(self.session.post)


def test_a_buyer_waits_once_and_each_request_of_it_has_its_moment(server: Answering) -> None:
    staged = Staged(buyers=1, count=1)
    buyer = Rushed(staged.crowd(0), server, 0)
    began = time.monotonic_ns()
    first, _ = buyer.buy()
    assert buyer.purchase.first is first
    again, _ = buyer.buy()
    assert began < first.sent < again.sent < time.monotonic_ns()
    assert 0 < buyer.purchase.waited <= (first.sent - began) / 1e9
    assert staged.rush.arrived == 1


def test_of_two_requests_in_one_purchase_the_first_waits_and_is_its_moment(
    server: Answering,
) -> None:
    staged = Staged(buyers=1, count=1)
    buyer = Rushed(staged.crowd(0), server, 0)
    request, _ = buyer.purchase.send(lambda: [buyer.session.post("/a"), buyer.session.post("/b")])
    assert staged.crowd(0)._asked == {buyer.purchase.key: [request]}


def test_who_was_not_released_when_the_rush_ended_sends_nothing(server: Answering) -> None:
    crowd = Staged(buyers=2, count=1).crowd(0)
    buyer = Rushed(crowd, server, 0)
    ended = gevent.spawn_later(0.05, crowd.close)
    with pytest.raises(Over):
        buyer.buy()
    ended.join()
    assert (server.connections, crowd._asked) == (0, {})


def test_a_purchase_that_is_not_sent_with_the_buyers_client_is_refused(server: Answering) -> None:
    staged = Staged(buyers=1, count=1)
    buyer = Rushed(staged.crowd(0), server, 0)
    with pytest.raises(TargetError, match=r"buy\(\) sent nothing with buyer\.client"):
        buyer.purchase.send(server.session().post)
    assert staged.rush.arrived == 0


def test_no_collection_walks_through_the_buyers_of_a_rush_and_later_ones_find_them() -> None:
    staged = Staged(buyers=1, count=1)
    before = gc.get_freeze_count()
    staged.crowd(0).release()
    assert gc.get_freeze_count() > before
    staged.crowd(0).close()
    assert gc.get_freeze_count() == 0
