"""Clients on raw sockets: crowds that occupy a server, and customers who outlast its restart.

During a crowd, other visitors measure how soon they are answered.
"""

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
from typing import NamedTuple, Self

from loadtest.stack.client import Shop

#: If a request is not answered in this time, the server counts as dead.
ANSWER_TIMEOUT_SECONDS = 5.0
#: If a purchase is not answered in this time, it counts as lost.
PURCHASE_TIMEOUT_SECONDS = 60.0
#: Pause of a customer between two requests: some are always under way, but the machine is not busy.
CUSTOMER_PAUSE_SECONDS = 0.03
#: How long other visitors send requests while a crowd is there.
OBSERVATION_SECONDS = 1.5
#: Sold out: the highest status that a visitor gets from a shop that is not held up.
SOLD_OUT_STATUS = 409


def build_purchase(body: Mapping[str, object], *, key: str = "") -> bytes:
    """Return the bytes of an HTTP request that buys, and asks the server to disconnect afterwards.

    key  the idempotency key; without a key, a repeated request may buy again
    """
    content = json.dumps(body).encode()
    key_header = f"Idempotency-Key: {key}\r\n" if key else ""
    head = (
        "POST /buy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{key_header}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


def build_get(path: str) -> bytes:
    """Return the bytes of a GET request on its own connection."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


#: The address of a crowd. The requests whose answers are timed have another one, because nginx
#: limits the requests under way from one address. macOS has only one loopback address.
CROWD_ADDRESS = "127.0.0.2" if sys.platform == "linux" else ""


@dataclass(frozen=True)
class Crowd:
    """Clients that connect, send `bytes_sent`, and then neither read nor close."""

    size: int
    bytes_sent: bytes

    @contextmanager
    def connect(self, port: int) -> Iterator[list[socket.socket]]:
        """Connect all clients to a port, and disconnect them at the end of the block."""
        source = (CROWD_ADDRESS, 0) if CROWD_ADDRESS else None
        with ExitStack() as sockets:
            clients: list[socket.socket] = []
            for _ in range(self.size):
                client = socket.create_connection(
                    ("127.0.0.1", port), ANSWER_TIMEOUT_SECONDS, source
                )
                clients.append(sockets.enter_context(client))
                client.sendall(self.bytes_sent)
            yield clients


_PURCHASE = build_purchase({"buyer": "slow", "lock": "conditional"})
#: A purchase that holds the lock for 5 s, while the others of its crowd wait for the lock.
_LONG_PURCHASE = build_purchase(
    {"buyer": "waits", "lock": "redis", "hold_ms": 5000, "product": "queue"}
)
#: The crowds during which docs/production.md promises quick answers, with the sizes stated there.
CROWDS = {
    "lingering": Crowd(200, build_get("/healthz")),
    "half headers": Crowd(4300, _PURCHASE[:40]),
    "half bodies": Crowd(4300, _PURCHASE[:-10]),
    "silent": Crowd(1500, b""),
    "waiting buyers": Crowd(420, _LONG_PURCHASE),
}
#: The requests of other visitors.
HEALTH = build_get("/healthz")
PAGES = (build_get("/strategies"), build_get("/sales/latest"))


def read_whole_answer(port: int, request: bytes, timeout: float = ANSWER_TIMEOUT_SECONDS) -> bytes:
    """Send a request, and return all bytes until the server closes the connection.

    Raises OSError. It is a TimeoutError if no byte comes for `timeout` seconds.
    """
    with socket.create_connection(("127.0.0.1", port), timeout) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def measure_longest_wait(port: int, requests: Sequence[bytes]) -> float:
    """Send each request repeatedly, and return the longest time until an answer, in seconds.

    The time is infinite if an answer does not come within ANSWER_TIMEOUT_SECONDS, is not HTTP, or
    has a status above SOLD_OUT_STATUS.
    """
    end = time.monotonic() + OBSERVATION_SECONDS

    def measure(request: bytes) -> float:
        longest_seconds = 0.0
        while time.monotonic() < end:
            started_at = time.monotonic()
            try:
                status = int(read_whole_answer(port, request).split(b" ", 2)[1])
            except (OSError, IndexError, ValueError):
                return math.inf
            if status > SOLD_OUT_STATUS:
                return math.inf
            longest_seconds = max(longest_seconds, time.monotonic() - started_at)
            time.sleep(0.02)
        return longest_seconds

    with ThreadPoolExecutor(len(requests)) as pool:
        return max(pool.map(measure, requests))


class TimedOutcome(NamedTuple):
    """The outcome of one request, empty if it was lost. Times are monotonic, in seconds."""

    asked_at: float
    answered_at: float
    outcome: str


class Customers:
    """Buyers who buy one unit after another. They repeat each request until the answer is `sold`.

    size        the number of buyers
    answers     the outcomes of all requests, in the order in which they were answered
    sold_keys   the keys that were answered `sold`
    lost        key -> the error of a request that got no answer with an outcome; after the first
                one all customers stop
    """

    def __init__(
        self, port: int, size: int = 24, *, product: str = "apple", lock: str = "redis"
    ) -> None:
        self.port = port
        self.product = product
        self.lock = lock
        self.answers: list[TimedOutcome] = []
        self.sold_keys: list[str] = []
        self.lost: dict[str, str] = {}
        self._should_stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._buy, args=(f"c{number}-{id(self)}",), daemon=True)
            for number in range(size)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Start no more purchases, and wait until each customer has finished its last one."""
        self._should_stop.set()
        for thread in self._threads:
            thread.join(PURCHASE_TIMEOUT_SECONDS)

    @property
    def outcomes(self) -> set[str]:
        """The outcomes that occurred; the empty text stands for a lost request."""
        return {answer.outcome for answer in self.answers}

    def wait_for(self, outcome: str, count: int) -> None:
        """Wait until `count` of the requests sent from now on have been answered with this outcome.

        Fails after 30 s, or as soon as a request is lost.
        """
        started_at = time.monotonic()
        deadline = started_at + 30
        while self._count_answers(outcome, started_at) < count:
            assert self.lost == {}, "every request should get an outcome"
            assert time.monotonic() < deadline, f"too few {outcome}: {self.answers[-5:]}"
            time.sleep(0.02)

    def _count_answers(self, outcome: str, since: float) -> int:
        """Return how many requests sent after this time were answered with this outcome."""
        answers = list(self.answers)  # a copy, because the threads append to it
        return sum(answer.asked_at > since and answer.outcome == outcome for answer in answers)

    def assert_sale_is_exact(self, shop: Shop, sale: int) -> None:
        """Assert that the sale has one order for each key in `sold_keys`, and no lost update."""
        assert self.lost == {}
        assert sorted(order["key"] for order in shop.orders(sale)) == sorted(self.sold_keys)
        assert shop.sale(sale)["lost_updates"] == 0

    def _buy(self, name: str) -> None:
        """Buy unit after unit, each under a new key, until stop() or until a request is lost."""
        for number in itertools.count():
            key = f"{name}-{number}"
            while not self.lost and self._ask(name, key) != "sold":
                time.sleep(CUSTOMER_PAUSE_SECONDS)
            if self.lost or self._should_stop.wait(CUSTOMER_PAUSE_SECONDS):
                return

    def _ask(self, buyer: str, key: str) -> str:
        """Send a purchase. Record and return its outcome: empty if the request was lost."""
        purchase = {"buyer": buyer, "lock": self.lock, "product": self.product}
        request = build_purchase(purchase, key=key)
        asked_at = time.monotonic()
        outcome = ""
        try:
            answer = read_whole_answer(self.port, request, PURCHASE_TIMEOUT_SECONDS)
            outcome = str(json.loads(answer.partition(b"\r\n\r\n")[2])["outcome"])
        except (OSError, ValueError, KeyError) as error:
            self.lost[key] = repr(error)
        if outcome == "sold":
            self.sold_keys.append(key)
        self.answers.append(TimedOutcome(asked_at, time.monotonic(), outcome))
        return outcome
