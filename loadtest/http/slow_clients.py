"""Clients that hold a server up without asking for much, and what everybody else notices of it.

Each is a crowd of raw sockets that does the least it can. While a crowd is there, `worst_answers`
asks as other visitors do and reports the longest time that any of them waited.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

#: Seconds after which a server that has not answered counts as dead.
DEAD = 5.0
#: Seconds for which other visitors ask while a crowd is there.
OBSERVED = 1.5
#: Bytes that the kernel keeps for a client that does not read.
SMALL_WINDOW = 1024
LARGE_PAGE = "/static/assets/vendor/echarts/echarts.min.js"


def post_buy(body: Mapping[str, object], *, close: bool = False, key: str = "") -> bytes:
    """The bytes of one purchase."""
    content = json.dumps(body).encode()
    lines = [
        "POST /buy HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        *(["Connection: close"] if close else []),
        *([f"Idempotency-Key: {key}"] if key else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def get(path: str, *, close: bool = False) -> bytes:
    """The bytes of a GET."""
    end = "Connection: close\r\n\r\n" if close else "\r\n"
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{end}".encode()


@dataclass(frozen=True)
class Crowd:
    """Clients that all do the same: connect, send `sends`, and neither read nor close.

    window  bytes that the kernel may keep unread for each; 0 for the usual
    """

    name: str
    size: int
    sends: bytes
    window: int = 0

    @contextmanager
    def at(self, port: int) -> Iterator[list[socket.socket]]:
        """Connect them all, and disconnect them at the end of the block."""
        sockets: list[socket.socket] = []
        try:
            for _ in range(self.size):
                client = socket.socket()
                sockets.append(client)
                if self.window:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.window)
                client.settimeout(DEAD)
                client.connect(("127.0.0.1", port))
                client.sendall(self.sends)
            yield sockets
        finally:
            for client in sockets:
                client.close()


_PURCHASE = post_buy({"buyer": "slow", "lock": "conditional"})
#: A purchase that waits for the lock, or holds it for long.
_WAITS = {"buyer": "waiting", "lock": "redis", "hold_ms": 5000, "product": "queue"}

CROWDS = {
    crowd.name: crowd
    for crowd in (
        Crowd("lingering", 200, get("/healthz", close=True)),
        Crowd("half-headers", 200, _PURCHASE[:40]),
        Crowd("half-bodies", 200, _PURCHASE[:-10]),
        Crowd("silent", 1500, b""),
        Crowd("not-reading", 120, get(LARGE_PAGE) * 6, window=SMALL_WINDOW),
        Crowd("waiting-buyers", 420, post_buy(_WAITS)),
    )
}

#: What other visitors ask for. The last one needs a thread that sells: there is none where 420
#: buyers wait.
HEALTH = get("/healthz", close=True)
PAGES = (get("/strategies", close=True), get("/sales/latest", close=True))
PURCHASE = post_buy({"buyer": "other", "lock": "conditional"}, close=True)


def worst_answers(
    port: int, questions: Sequence[bytes], *, seconds: float = OBSERVED
) -> dict[bytes, float]:
    """The longest time that each question waited for its answer, asked again and again.

    Each has a thread of its own. An answer that is no 200 to 409, or that did not come in DEAD
    seconds, counts as infinitely long.
    """
    worst = dict.fromkeys(questions, 0.0)
    end = time.monotonic() + seconds

    def ask(question: bytes) -> None:
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                status = int(whole_answer(port, question).split(b" ", 2)[1])
                took = time.monotonic() - began if 200 <= status < 410 else float("inf")
            except (OSError, IndexError, ValueError):
                took = float("inf")
            worst[question] = max(worst[question], took)
            if took == float("inf"):
                return
            time.sleep(0.02)

    askers = [threading.Thread(target=ask, args=(question,)) for question in questions]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    return worst


def whole_answer(port: int, question: bytes) -> bytes:
    """Ask on a connection of its own and read until the server closes it. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEAD) as client:
        client.sendall(question)
        return b"".join(iter(lambda: client.recv(65536), b""))


@dataclass(frozen=True)
class Burst:
    """What came of many requests that were completed at the same time.

    answers  every answer, whole; empty bytes where none came
    seconds  until the last of them was answered and its connection closed by the server
    """

    answers: list[bytes]
    seconds: float

    def outcomes(self) -> list[str]:
        """The outcome of each purchase; `unanswered` where there is no answer."""
        return sorted(map(outcome_of, self.answers))


def last_byte_sync(port: int, requests: Sequence[bytes], *, timeout: float = 30.0) -> Burst:
    """Send every request but its last byte, then all the last bytes, and wait for every close."""
    with connected(port, len(requests)) as clients:
        for client, request in zip(clients, requests, strict=True):
            client.sendall(request[:-1])
        began = time.monotonic()
        for client, request in zip(clients, requests, strict=True):
            client.sendall(request[-1:])
        answers = read_until_closed(clients, timeout=timeout)
        return Burst(answers, time.monotonic() - began)


def rush_seconds(port: int, requests: Sequence[bytes]) -> float:
    """Seconds until clients who keep their connection, and hang up themselves, are all answered."""
    kept = [request.replace(b"Connection: close\r\n", b"") for request in requests]
    with connected(port, len(kept)) as clients:
        began = time.monotonic()
        for client, request in zip(clients, kept, strict=True):
            client.sendall(request)
        for client in clients:
            read_answer(client)
            client.close()
        return time.monotonic() - began


@contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, closed at the end of the block."""
    with ExitStack() as everything:
        yield [
            everything.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            for _ in range(count)
        ]


def read_until_closed(clients: Sequence[socket.socket], *, timeout: float) -> list[bytes]:
    """What each connection brought until the server closed or reset it, or time was up."""
    brought = dict.fromkeys(clients, b"")
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ, client)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(0.5):
                client = key.data
                try:
                    part = client.recv(65536)
                except ConnectionError:
                    part = b""
                brought[client] += part
                if not part:
                    selector.unregister(client)
    return [brought[client] for client in clients]


def outcome_of(answer: bytes) -> str:
    """The outcome in the shop's JSON, or the first line of what is none."""
    _, _, body = answer.partition(b"\r\n\r\n")
    try:
        return str(json.loads(body)["outcome"])
    except (ValueError, KeyError):
        return "unanswered" if not answer else answer[:40].decode(errors="replace")


def read_answer(connection: socket.socket) -> bytes:
    """One whole answer with a Content-Length. Raises OSError when the connection ends before."""
    answer = b""
    while True:
        head, end, body = answer.partition(b"\r\n\r\n")
        if end and len(body) >= _content_length(head):
            return answer
        part = connection.recv(65536)
        if not part:
            raise ConnectionError(f"closed after {len(answer)} bytes of an answer")
        answer += part


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
