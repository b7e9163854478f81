"""The floor of the drain: the least that a hand-over between threads takes through one server.

No lock, for the order is known beforehand, as are all commands. Each thread waits, as RedisLock's
waiters do, in a mailbox behind the one subscription of its process; it holds for a moment and
wakes the next thread, which is in another process, by PUBLISH on a plain socket. What a lock takes
beyond that is its script, its lease and its way through redis-py.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from ..scripts import packed


def channel(name: str, number: int, processes: int) -> str:
    """On which the process of this thread listens."""
    return f"{name}:{number % processes}"


class Relay:
    """The threads of one process, already waiting when the constructor returns.

    process  the number of this one among so many `processes`; thread n runs in n % processes
    waiters  threads in all processes
    hold     seconds
    """

    def __init__(
        self, port: int, name: str, *, process: int, processes: int, waiters: int, hold: float
    ) -> None:
        self._port, self._name, self._processes = port, name, processes
        self._waiters, self._hold = waiters, hold
        self._idle: list[socket.socket] = []
        self._spans: list[tuple[float, float, float]] = []
        numbers = range(process, waiters, processes)
        self._boxes = {number: queue.SimpleQueue[None]() for number in numbers}
        self._subscription = self._connect()
        self._subscription.sendall(packed("SUBSCRIBE", channel(name, process, processes)))
        self._subscription.recv(4096)
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in numbers]
        self._listener = threading.Thread(target=self._listen)
        for thread in [self._listener, *self._threads]:
            thread.start()

    def finish(self) -> dict[str, Any]:
        """When all have had their turn: their spans, as Worker.drain() returns them."""
        for thread in self._threads:
            thread.join()
        self._subscription.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        for each in [self._subscription, *self._idle]:
            each.close()
        return {"spans": [[span] for span in self._spans], "sent": len(self._spans)}

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _listen(self) -> None:
        while message := self._subscription.recv(4096):  # one at a time: one thread has the turn
            self._boxes[int(message.split(b"\r\n")[-2])].put(None)

    def _run(self, number: int) -> None:
        self._boxes[number].get()
        acquired = time.monotonic()
        time.sleep(self._hold)
        released = time.monotonic()
        if number + 1 < self._waiters:
            connection = None
            with suppress(IndexError):
                connection = self._idle.pop()
            connection = connection or self._connect()
            following = channel(self._name, number + 1, self._processes)
            connection.sendall(packed("PUBLISH", following, number + 1))
            connection.recv(4096)
            self._idle.append(connection)
        self._spans.append((acquired, acquired, released))
