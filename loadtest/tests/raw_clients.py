"""Clients on raw sockets: crowds that occupy a server, and customers who buy during a restart.

While a crowd is connected, measure_longest_wait() measures how soon other requests are answered.
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

#: How long the measured requests wait for bytes of an answer.
ANSWER_TIMEOUT_SECONDS = 5.0
#: How long a customer waits for bytes of an answer. Then the purchase counts as lost.
PURCHASE_TIMEOUT_SECONDS = 60.0
#: Pause of a customer between two requests. It is long enough to leave most of the processor idle,
#: and short enough that some customer's request is always in progress.
CUSTOMER_PAUSE_SECONDS = 0.03
#: How long measure_longest_wait() sends requests.
OBSERVATION_SECONDS = 1.5
#: The status of the answer `sold_out`. A higher status shows that the server is overloaded.
SOLD_OUT_STATUS = 409


def build_purchase(body: Mapping[str, object], *, key: str = "") -> bytes:
    """Return the bytes of an HTTP request that buys. It has the header `Connection: close`.

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
    """Return the bytes of a GET request. It has the header `Connection: close`."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


#: The IP address of a crowd. The measured requests come from 127.0.0.1, because nginx limits how
#: many requests of one address are in progress. macOS has no other loopback address.
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


#: The request from which the crowds `half headers` and `half bodies` send only the beginning.
_PURCHASE = build_purchase({"buyer": "slow", "lock": "conditional"})
#: A purchase that holds the lock for 5 s, while the rest of its crowd waits for the lock.
_LONG_PURCHASE = build_purchase(
    {"buyer": "waits", "lock": "redis", "hold_ms": 5000, "product": "queue"}
)
#: The crowds during which docs/production.md promises quick answers, with the sizes stated there.
CROWDS = {
    "answer not read": Crowd(200, build_get("/healthz")),
    "half headers": Crowd(4300, _PURCHASE[:40]),
    "half bodies": Crowd(4300, _PURCHASE[:-10]),
    "silent": Crowd(1500, b""),
    "waiting buyers": Crowd(420, _LONG_PURCHASE),
}
#: Requests whose answers are timed while a crowd is connected.
HEALTH = build_get("/healthz")
PAGES = (build_get("/strategies"), build_get("/sales/latest"))


def read_whole_answer(port: int, request: bytes, timeout: float = ANSWER_TIMEOUT_SECONDS) -> bytes:
    """Send a request, and return all bytes until the server closes the connection.

    Raises TimeoutError if no byte arrives for `timeout` seconds, and OSError if the connection
    fails.
    """
    with socket.create_connection(("127.0.0.1", port), timeout) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def measure_longest_wait(port: int, requests: Sequence[bytes]) -> float:
    """Send each request repeatedly, and return the longest time until an answer, in seconds.

    Return infinity if a request is not answered within ANSWER_TIMEOUT_SECONDS, or if an answer is
    not HTTP or has a status above SOLD_OUT_STATUS.
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
    """The outcome of one request, with its times on the monotonic clock, in seconds.

    outcome  the outcome of the answer; empty if the request was lost
    """

    sent_at: float
    answered_at: float
    outcome: str


class Customers:
    """Buyers who buy one unit after another. They repeat each request until the answer is `sold`.

    A request is lost if it gets no answer, or an answer without an outcome. After the first lost
    request all customers stop.

    size         the number of buyers
    answers      the outcomes of all requests, in the order in which they were answered
    sold_keys    the idempotency keys of the requests that were answered `sold`
    lost_errors  idempotency key -> the error of the lost request
    """

    def __init__(
        self, port: int, size: int = 24, *, product: str = "apple", lock: str = "redis"
    ) -> None:
        self.port = port
        self.product = product
        self.lock = lock
        self.answers: list[TimedOutcome] = []
        self.sold_keys: list[str] = []
        self.lost_errors: dict[str, str] = {}
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
        """The outcomes of all requests. A lost request has the empty outcome."""
        return {answer.outcome for answer in self.answers}

    def wait_for(self, outcome: str, count: int) -> None:
        """Wait until `count` of the requests sent from now on have been answered with this outcome.

        Fails after 30 s, or as soon as a request is lost.
        """
        started_at = time.monotonic()
        deadline = started_at + 30
        while self._count_answers(outcome, started_at) < count:
            assert self.lost_errors == {}, "every request should get an outcome"
            assert time.monotonic() < deadline, f"too few {outcome}: {self.answers[-5:]}"
            time.sleep(0.02)

    def _count_answers(self, outcome: str, since: float) -> int:
        """Return how many requests sent after this time were answered with this outcome."""
        answers = list(self.answers)  # a copy, because the threads append to it
        return sum(answer.sent_at > since and answer.outcome == outcome for answer in answers)

    def assert_sale_is_exact(self, shop: Shop, sale: int) -> None:
        """Assert that the sale has one order for each key in `sold_keys`, and no lost update."""
        assert self.lost_errors == {}
        assert sorted(order["key"] for order in shop.orders(sale)) == sorted(self.sold_keys)
        assert shop.sale(sale)["lost_updates"] == 0

    def _buy(self, name: str) -> None:
        """Buy one unit after another, each with a new key, until stop() or a lost request."""
        for number in itertools.count():
            key = f"{name}-{number}"
            while not self.lost_errors and self._send_purchase(name, key) != "sold":
                time.sleep(CUSTOMER_PAUSE_SECONDS)
            if self.lost_errors or self._should_stop.wait(CUSTOMER_PAUSE_SECONDS):
                return

    def _send_purchase(self, buyer: str, key: str) -> str:
        """Send a purchase. Record and return its outcome: empty if the request was lost."""
        purchase = {"buyer": buyer, "lock": self.lock, "product": self.product}
        request = build_purchase(purchase, key=key)
        sent_at = time.monotonic()
        outcome = ""
        try:
            answer = read_whole_answer(self.port, request, PURCHASE_TIMEOUT_SECONDS)
            outcome = str(json.loads(answer.partition(b"\r\n\r\n")[2])["outcome"])
        except (OSError, ValueError, KeyError) as error:
            self.lost_errors[key] = repr(error)
        if outcome == "sold":
            self.sold_keys.append(key)
        self.answers.append(TimedOutcome(sent_at, time.monotonic(), outcome))
        return outcome
