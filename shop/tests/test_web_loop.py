"""What the event loop asks of its connections, and when."""

from __future__ import annotations

import selectors
import socket
from collections import Counter
from contextlib import ExitStack

import pytest

from shop.tests.till import eventually
from shop.tests.web_server import Served, read_all, request
from shop.web.channel import Channel
from shop.web.loop import Loop

WAITING = 10


def test_a_buyer_who_waits_for_the_lock_costs_other_requests_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each event would otherwise ask all of them: a crowd takes the square of its size."""
    asked: Counter[Channel] = Counter()
    readable = Channel.readable

    def counted(channel: Channel) -> bool:
        asked[channel] += 1
        return readable(channel)

    monkeypatch.setattr(Channel, "readable", counted)
    with Served() as served, ExitStack() as buyers:
        clients = [
            buyers.enter_context(served.send(request("/buy", method="POST")))
            for _ in range(WAITING)
        ]
        eventually(lambda: len(in_flight(served)) == WAITING, what="all wait")
        waiting = in_flight(served)
        served.ask(request("/page"))
        asked.clear()
        for _ in range(20):
            served.ask(request("/page"))
        assert sum(asked[channel] for channel in waiting) == 0
        assert sum(asked.values()) >= 20, "nothing was counted: this shows nothing"
        served.open.set()
        for client in clients:
            assert read_all(client).startswith(b"HTTP/1.1 200 OK")


def in_flight(served: Served) -> list[Channel]:
    return [each for each in served.server.active_channels.values() if each.is_in_flight()]


def test_an_answer_that_begins_while_the_loop_asks_is_not_missed() -> None:
    """The thread begins to write after the loop has found that it has not."""
    loop = Loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answering = Answering(loop, ours.fileno())
        loop[ours.fileno()] = answering
        loop.turn(0)
        assert (answering.began, answering.asked) == (True, 1)
        loop.turn(0)
        assert answering.asked == 2
    loop.close()


def test_a_connection_that_a_thread_closes_while_it_is_registered_harms_nobody() -> None:
    """Nor the next one with its number."""
    loop = Loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop[ours.fileno()] = Answering(loop, ours.fileno())
        loop._wanted[ours.fileno()] = selectors.EVENT_READ  # said, and not done yet
        del loop[ours.fileno()]
        loop._wanted[ours.fileno()] = selectors.EVENT_READ
        loop[ours.fileno()] = following = Answering(loop, ours.fileno())
        loop.turn(0)
        assert following.asked == 1
        assert not loop._wanted.get(ours.fileno())
    loop.close()


class Answering:
    """A connection whose thread begins to answer at the worst moment."""

    accepting = False

    def __init__(self, loop: Loop, fd: int) -> None:
        self.asked, self.began = 0, False
        self._loop, self._fd = loop, fd

    def readable(self) -> bool:
        self.asked += 1
        return False

    def writable(self) -> bool:
        return False

    @property
    def awaits_its_thread(self) -> bool:
        before, self.began = self.began, True
        if not before:
            self._loop.ask_soon(self._fd)
        return not before
