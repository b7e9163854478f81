"""Which threads answer what."""

from __future__ import annotations

from waitress.task import ThreadedTaskDispatcher

from shop.web.channel import Channel
from shop.web.errors import RequestError
from shop.web.parser import Parser

#: Threads for everything that sells nothing: pages, reports, readyz, error messages.
PAGE_THREADS = 8


class Lane(ThreadedTaskDispatcher):
    """A queue of requests and the threads that answer them."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.set_thread_count(threads)

    def take_waiting(self) -> list[Channel]:
        """Remove and return every request that has no thread yet."""
        with self.lock:
            waiting: list[Channel] = list(self.queue)
            self.queue.clear()
        return waiting


class Lanes:
    """Three queues, so that no kind of request waits behind another.

    A purchase may wait half a minute for a lock. A page or readyz may wait for the database. A
    liveness probe waits for nobody, and has a thread of its own: an orchestrator kills a node that
    does not answer it.

    buyers  threads for POST /buy: the most purchases that this process has in flight
    """

    def __init__(self, buyers: int) -> None:
        self.purchases = Lane(buyers)
        self.pages = Lane(PAGE_THREADS)
        self.health = Lane(1)

    def add_task(self, channel: Channel) -> None:
        """Queue the channel's next request, which is complete."""
        self._lane_for(channel.requests[0]).add_task(channel)

    def refuse_waiting(self, error: RequestError) -> None:
        """Answer every purchase that has no thread yet with this error: none of them has begun."""
        for channel in self.purchases.take_waiting():
            channel.requests[0].error = error
            self.add_task(channel)

    def _lane_for(self, request: Parser) -> Lane:
        if request.error is not None:
            return self.pages
        if request.path == "/buy" and request.command == "POST":
            return self.purchases
        return self.health if request.path == "/healthz" else self.pages
