"""Clients on raw sockets: crowds that occupy a server, and buyers who outlast its restart."""

import itertools
import json
import math
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

from loadtest.stack.client import Shop

#: Seconds after which a server that has not answered counts as dead, and a purchase as lost.
DEAD, LOST = 5.0, 60.0
#: Seconds between two requests of a buyer: enough are under way, and the machine is not busy.
PACE = 0.03
#: Seconds for which other visitors ask while a crowd is there.
OBSERVED = 1.5


def post_buy(body: Mapping[str, object], *, key: str = "") -> bytes:
    """Return the bytes of a purchase on its own connection. Without a key it is not idempotent."""
    content = json.dumps(body).encode()
    key_header = f"Idempotency-Key: {key}\r\n" if key else ""
    head = (
        "POST /buy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{key_header}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


def get(path: str) -> bytes:
    """Return the bytes of a GET request on a connection of its own."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


@dataclass(frozen=True)
class Crowd:
    """Clients that connect, send `sends`, and then neither read nor close."""

    size: int
    sends: bytes

    @contextmanager
    def at(self, port: int) -> Iterator[list[socket.socket]]:
        """Connect all clients, and disconnect them at the end of the block."""
        source = (CROWD_ADDRESS, 0) if CROWD_ADDRESS else None
        with ExitStack() as sockets:
            clients: list[socket.socket] = []
            for _ in range(self.size):
                client = socket.create_connection(("127.0.0.1", port), DEAD, source)
                clients.append(sockets.enter_context(client))
                client.sendall(self.sends)
            yield clients


#: Where a crowd comes from: not from the address of those whose answers are timed, because nginx
#: bounds the requests of an address. macOS has only one loopback address.
CROWD_ADDRESS = "127.0.0.2" if sys.platform == "linux" else ""
_PURCHASE = post_buy({"buyer": "slow", "lock": "conditional"})
#: Each waits for the lock, or holds it for long.
_WAITS = post_buy({"buyer": "waits", "lock": "redis", "hold_ms": 5000, "product": "queue"})
CROWDS = {
    "lingering": Crowd(200, get("/healthz")),
    "half headers": Crowd(4300, _PURCHASE[:40]),
    "half bodies": Crowd(4300, _PURCHASE[:-10]),
    "silent": Crowd(1500, b""),
    "waiting buyers": Crowd(420, _WAITS),
}
#: What other visitors ask for.
HEALTH, PAGES = get("/healthz"), (get("/strategies"), get("/sales/latest"))


def read_whole_answer(port: int, question: bytes, timeout: float = DEAD) -> bytes:
    """Send a request and read until the server closes the connection. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout) as client:
        client.sendall(question)
        return b"".join(iter(lambda: client.recv(65536), b""))


def measure_longest_wait(port: int, questions: Sequence[bytes]) -> float:
    """Send each question repeatedly, and return the longest time until an answer, in seconds.

    It is infinite if there is no answer within DEAD seconds, or one with a status of 410 or more.
    """
    end = time.monotonic() + OBSERVED

    def ask(question: bytes) -> float:
        longest = 0.0
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                status = int(read_whole_answer(port, question).split(b" ", 2)[1])
            except (OSError, IndexError, ValueError):
                return math.inf
            if status >= 410:
                return math.inf
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.02)
        return longest

    with ThreadPoolExecutor(len(questions)) as pool:
        return max(pool.map(ask, questions))


class Customers:
    """Buyers who buy one unit after another, and repeat each request with its key until it is sold.

    answers  of every request: when it was sent and answered, in monotonic seconds, and its outcome
    bought   the keys that were answered `sold`
    lost     the errors of requests without an answer, by key; after the first one all buyers stop
    """

    def __init__(
        self, port: int, size: int = 24, *, product: str = "apple", lock: str = "redis"
    ) -> None:
        self.port = port
        self.product = product
        self.lock = lock
        self.answers: list[tuple[float, float, str]] = []
        self.bought: list[str] = []
        self.lost: dict[str, str] = {}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._buy, args=(f"c{number}-{id(self)}",), daemon=True)
            for number in range(size)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(LOST)

    @property
    def outcomes(self) -> set[str]:
        return {outcome for _, _, outcome in self.answers}

    def wait_for(self, outcome: str, count: int) -> None:
        """Wait until `count` requests, sent from now on, have been answered with this outcome."""
        since, deadline = time.monotonic(), time.monotonic() + 30
        while (
            sum(
                asked_at > since and answered_outcome == outcome
                for asked_at, _, answered_outcome in list(self.answers)
            )
            < count
        ):
            assert not self.lost
            assert time.monotonic() < deadline, f"too few {outcome}: {self.answers[-5:]}"
            time.sleep(0.02)

    def assert_books_are_exact(self, shop: Shop, sale: int) -> None:
        """Assert that every key was answered `sold` in the end, and has one order."""
        assert self.lost == {}
        assert sorted(order["key"] for order in shop.orders(sale)) == sorted(self.bought)
        assert shop.sale(sale)["lost_updates"] == 0

    def _buy(self, name: str) -> None:
        for number in itertools.count():
            key = f"{name}-{number}"
            while not self.lost and self._ask(name, key) != "sold":
                time.sleep(PACE)
            if self.lost or self._over.wait(PACE):
                return

    def _ask(self, buyer: str, key: str) -> str:
        purchase = {"buyer": buyer, "lock": self.lock, "product": self.product}
        asked_at, outcome = time.monotonic(), ""
        try:
            answer = read_whole_answer(self.port, post_buy(purchase, key=key), LOST)
            outcome = str(json.loads(answer.partition(b"\r\n\r\n")[2])["outcome"])
        except (OSError, ValueError, KeyError) as error:
            self.lost[key] = repr(error)
        if outcome == "sold":
            self.bought.append(key)
        self.answers.append((asked_at, time.monotonic(), outcome))
        return outcome
