"""The nodes' HTTP: what is too large, too slow or too much, and who is answered all the same."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.conf import settings

from shop.tests.till import eventually
from shop.tests.web_server import LARGE, Served, body_of, read_all, request
from shop.web.channel import Channel
from shop.web.errors import Stopping
from shop.web.lanes import PAGE_THREADS
from shop.web.listener import allow_handshakes, stop_handshakes
from shop.web.parser import KEPT_BODY, LARGEST_CHUNK_LINE
from shop.web.server import CLOSE_TIMEOUT, LINGER, REQUEST_TIMEOUT
from shop.web.worker import LARGEST_BODY, LARGEST_HEADERS

FEW = 5
ALIVE, BUY, PAGE = request("/healthz"), request("/buy", method="POST"), request("/page")


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as served:
        yield served


# --- what a request may be ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nBroken\r\n\r\n", b"400 Bad Request"),
        (request("/", "X: " + "x" * LARGEST_HEADERS), b"431 Request Header Fields Too Large"),
        (
            request("/", f"Content-Length: {LARGEST_BODY}", method="POST") + b"x" * LARGE,
            b"413 Request Entity Too Large",
        ),
        (
            request("/", "Transfer-Encoding: chunked", method="POST")
            + b"1" * (LARGEST_CHUNK_LINE + 1),
            b"400 Bad Request",
        ),
        (request("/", "Transfer-Encoding: gzip", method="POST"), b"501 Not Implemented"),
        (
            request("/", "Content-Length: 40", "Transfer-Encoding: chunked", method="POST")
            + b"0\r\n\r\n"
            + request("/smuggled"),
            b"400 Bad Request",
        ),
    ],
    ids=["no HTTP", "no header", "headers", "body", "chunk line", "encoding", "two lengths"],
)
def test_what_is_refused_before_django_is_answered_in_the_shops_form(
    served: Served, sent: bytes, status: bytes
) -> None:
    """Also where the client sends on: without the slow close it would see a reset instead."""
    answer = served.ask(sent)
    assert answer.startswith(b"HTTP/1.")
    assert answer.split(b" ", 1)[1].startswith(status)
    assert b"Content-Type: application/json" in answer
    assert body_of(answer)["outcome"] == "error"
    assert served.begun == []


def test_a_chunked_body_reaches_the_application_with_its_length(served: Served) -> None:
    answer = served.ask(
        request("/page", "Transfer-Encoding: chunked", method="POST")
        + b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
    )
    assert body_of(answer) == {"path": "/page", "length": "11", "kept": 11}


@pytest.mark.parametrize("chunked", [False, True])
def test_of_a_large_body_the_beginning_is_kept_and_the_length_is_known(
    served: Served, chunked: bool
) -> None:
    """Django refuses it by the length; memory holds no more than that."""
    if chunked:
        sent = request("/page", "Transfer-Encoding: chunked", method="POST")
        sent += b"%x\r\n%s\r\n0\r\n\r\n" % (LARGE, b"x" * LARGE)
    else:
        sent = request("/page", f"Content-Length: {LARGE}", method="POST") + b"x" * LARGE
    assert body_of(served.ask(sent)) == {"path": "/page", "length": str(LARGE), "kept": KEPT_BODY}
    assert settings.DATA_UPLOAD_MAX_MEMORY_SIZE < KEPT_BODY


def test_expect_100_continue_is_answered_before_the_body(served: Served) -> None:
    expects = ("Expect: 100-continue", "Content-Length: 2")
    with served.send(request("/page", *expects, method="POST")) as client:
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"hi")
        assert body_of(read_all(client))["kept"] == 2


def test_requests_sent_in_one_go_are_answered_in_their_order(served: Served) -> None:
    answer = served.ask(
        request("/one", close=False) + request("/healthz", close=False) + request("/three")
    )
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert served.begun == ["/one", "/healthz", "/three"]


def test_who_sends_more_than_it_asks_for_loses_no_answer(served: Served) -> None:
    """Closing at once with something unread resets the connection, and the answer with it."""
    assert b'"path": "/page"' in served.ask(PAGE + b"x" * LARGE)


# --- who waits for whom ---------------------------------------------------------------------------


def test_purchases_without_a_thread_keep_neither_pages_nor_probes_waiting(served: Served) -> None:
    with ExitStack() as waiting:
        for _ in range(10):
            waiting.enter_context(served.send(BUY))
        eventually(lambda: served.begun.count("/buy") == 2, what="two purchases have a thread")
        for asked in (PAGE, ALIVE):
            assert served.ask(asked).startswith(b"HTTP/1.1 200 OK")
    assert served.begun.count("/buy") == 2


def test_pages_that_wait_for_the_database_keep_no_probe_waiting(served: Served) -> None:
    with ExitStack() as waiting:
        for _ in range(PAGE_THREADS + 2):
            waiting.enter_context(served.send(request("/slow")))
        eventually(lambda: len(served.begun) == PAGE_THREADS, what="every page thread waits")
        assert served.ask(ALIVE).startswith(b"HTTP/1.1 200 OK")


def test_who_asks_and_asks_and_never_reads_blocks_no_thread(served: Served) -> None:
    with ExitStack() as waiting:
        for _ in range(2 * PAGE_THREADS):
            client = waiting.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.connect(("127.0.0.1", served.port))
            client.sendall(request("/large", close=False) * 60)
        assert served.ask(PAGE).startswith(b"HTTP/1.1 200 OK")
        assert served.begun.count("/large") < 2 * PAGE_THREADS * 30, "one after another, not all"


def test_a_purchase_that_has_not_begun_can_be_refused(served: Served) -> None:
    with ExitStack() as waiting:
        clients = [waiting.enter_context(served.send(BUY)) for _ in range(5)]
        eventually(lambda: len(served.lanes.purchases.queue) == 3, what="three have no thread")
        served.lanes.refuse_waiting(Stopping("nothing was sold"))
        served.open.set()
        answers = sorted(read_all(client).split(b" ")[1] for client in clients)
    assert answers == [b"200", b"200", b"503", b"503", b"503"]
    assert served.begun == ["/buy", "/buy"]


# --- how many, and how long -----------------------------------------------------------------------


def test_one_connection_too_many_ends_the_one_that_was_silent_longest() -> None:
    with Served(connections=FEW) as served, ExitStack() as everything:
        kept = everything.enter_context(served.send(request("/page", close=False)))
        kept.recv(1000)
        silent = [everything.enter_context(served.connect()) for _ in range(FEW - 1)]
        eventually(lambda: len(served.server.active_channels) == FEW, what="it is full")
        assert served.ask(PAGE).startswith(b"HTTP/1.1 200 OK")
        assert silent[0].recv(1) == b""
        kept.sendall(PAGE)
        assert b'"path": "/page"' in read_all(kept)


def test_where_all_are_being_answered_the_next_one_waits_and_is_not_reset() -> None:
    with Served(connections=2) as served, served.send(BUY) as one, served.send(BUY) as two:
        eventually(lambda: served.begun == ["/buy", "/buy"], what="both are in flight")
        with served.send(PAGE) as three:
            served.later(1)
            assert len(served.server.active_channels) == 2
            served.open.set()
            for client in (one, two, three):
                assert read_all(client).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("part", [PAGE[:20], BUY[:-2], request("/", "Content-Length: 9") + b"x"])
def test_a_request_that_does_not_end_is_refused_after_a_while(served: Served, part: bytes) -> None:
    with served.send(part) as client:
        eventually(lambda: any(c.begun for c in channels(served)), what="it has begun")
        served.later(REQUEST_TIMEOUT - 1)
        assert [c.requests for c in channels(served)] == [[]]
        served.later(REQUEST_TIMEOUT + 1)
        answer = read_all(client)
    assert b" 408 Request Timeout\r\n" in answer
    assert body_of(answer)["outcome"] == "error"


def test_a_silent_connection_is_ended_after_the_keepalive(served: Served) -> None:
    with served.connect() as client:
        eventually(lambda: len(channels(served)) == 1, what="it is accepted")
        served.later(74)
        assert len(channels(served)) == 1
        served.later(76)
        assert client.recv(1) == b""


def test_a_request_that_came_in_at_the_last_moment_is_answered(served: Served) -> None:
    with served.connect() as client:
        eventually(lambda: len(channels(served)) == 1, what="it is accepted")
        served.later(76, before=lambda: client.sendall(PAGE))
        assert read_all(client).startswith(b"HTTP/1.1 200 OK")


def test_an_answer_that_nobody_reads_is_given_up(served: Served) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.connect(("127.0.0.1", served.port))
        client.sendall(request("/large", close=False) * 20)
        eventually(lambda: any(is_stuck(c) for c in channels(served)), what="the next one waits")
        served.later(REQUEST_TIMEOUT + 1)
        eventually(lambda: not served.server.active_channels, what="it is closed")


def test_a_client_that_does_not_close_is_closed(served: Served) -> None:
    """It has its answer and its end at once; what is left is a file descriptor for two seconds."""
    with served.send(ALIVE) as client:
        assert read_all(client).startswith(b"HTTP/1.1 200 OK")
        eventually(lambda: any(c.closing_since for c in channels(served)), what="it is ending")
        served.later(CLOSE_TIMEOUT + 1)
        eventually(lambda: not served.server.active_channels, what="it is closed")


def test_a_stopping_server_waits_for_the_next_request_for_two_seconds(served: Served) -> None:
    with served.send(request("/page", close=False)) as client, served.connect() as silent:
        assert b"Connection: close" not in client.recv(1000)
        served.server.begin_to_stop()
        served.later(LINGER - 0.5)
        client.sendall(request("/page", close=False))
        assert b"Connection: close" in read_all(client)
        served.later(LINGER + 0.5)
        assert silent.recv(1) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="no such filter: the queue is drained only")
def test_a_connection_made_while_handshakes_are_stopped_is_neither_accepted_nor_reset(
    served: Served,
) -> None:
    with served.connect():  # connected before: it is accepted
        stop_handshakes(served.listener)
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", served.port), timeout=0.3)
        allow_handshakes(served.listener)
        assert served.ask(ALIVE).startswith(b"HTTP/1.1 200 OK")
    allow_handshakes(served.listener)  # twice does no harm


def channels(served: Served) -> list[Channel]:
    return list(served.server.active_channels.values())


def is_stuck(channel: Channel) -> bool:
    return bool(channel.total_outbufs_len and channel.requests) and not channel.is_in_flight()
