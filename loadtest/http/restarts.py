"""Buyers on raw sockets who go on while a node is stopped and started again."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from typing import Self

from loadtest.http.slow_clients import outcome_of, post_buy, read_answer

#: Seconds to connect. Who is not connected has sent nothing.
CONNECT_TIMEOUT = 3.0
#: Seconds for an answer, more than the longest wait for a lock.
ANSWER_TIMEOUT = 30.0


class Customers:
    """Buyers who buy and buy, half of them on a new connection each time.

    The other half keep their connection until the node says that it will close it.

    outcomes  the outcome of each purchase that was sent, by its key
    lost  the keys of those that were sent and not answered, with what happened
    """

    def __init__(self, port: int, *, size: int = 24, lock: str = "redis") -> None:
        self.port = port
        self.lock = lock
        self.outcomes: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._buy, args=(f"c{number}", number % 2 == 0))
            for number in range(size)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def count(self, outcome: str) -> int:
        """How many purchases had this outcome so far."""
        return list(self.outcomes.values()).count(outcome)

    def _buy(self, name: str, keeps: bool) -> None:
        connection: socket.socket | None = None
        try:
            for number in itertools.count():
                if self._over.is_set():
                    return
                if connection is None:
                    connection = self._connect()
                if connection is None:
                    time.sleep(0.05)  # nobody listens: the node is being started again
                    continue
                stays = self._ask(connection, f"{name}-{id(self)}-{number}", name, keeps)
                if not stays:
                    connection.close()
                    connection = None
        finally:
            if connection is not None:
                connection.close()

    def _connect(self) -> socket.socket | None:
        try:
            connection = socket.create_connection(("127.0.0.1", self.port), CONNECT_TIMEOUT)
        except OSError:
            return None
        connection.settimeout(ANSWER_TIMEOUT)
        return connection

    def _ask(self, connection: socket.socket, key: str, buyer: str, keeps: bool) -> bool:
        """Buy once; whether the connection is still good."""
        wanted = {"buyer": buyer, "lock": self.lock}
        try:
            connection.sendall(post_buy(wanted, close=not keeps, key=key))
            answer = read_answer(connection)
        except OSError as error:
            self.lost[key] = repr(error)
            return False
        self.outcomes[key] = outcome_of(answer)
        return keeps and b"connection: close" not in answer.lower()
