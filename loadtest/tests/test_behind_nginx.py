"""Two stock nodes behind nginx with the project's own configuration.

Slow clients hold up no buyer, and no purchase is lost when a node is restarted.
"""

import json
import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPResponse
from math import inf
from pathlib import Path
from typing import IO, Any, Self

import psutil
import pytest

from loadtest.stack.open_files import allow_connections
from loadtest.stack.stack import SERVERS, Stack
from loadtest.tests.raw_clients import (
    CROWDS,
    HEALTH,
    PAGES,
    Crowd,
    Customers,
    get,
    measure_longest_wait,
    post_buy,
    read_whole_answer,
)
from servers import embedded
from servers.embedded import ROOT
from servers.loopback import free_port
from servers.process import ServerProcess

FOLDER = ROOT / "deploy" / "docker"
#: Directives that nginx knows only since 1.27: to ask for names again, and a milder reload.
NEW = re.compile(r" resolve\b|^ *keepalive_min_timeout .*\n", re.MULTILINE)
#: Names the address of a client to nginx, in these tests only.
ADDRESS_HEADER = "X-Test-Address"
#: Seconds.
SOON = 0.5
#: Large bodies: announced, and sent.
ANNOUNCED_BYTES, SENT_BYTES = 15_000_000, 14_000_000
MEGABYTE = 1_000_000
#: How often a busy machine may be slow. A server that is held up is so each time.
TRIES = 5
#: Purchases before and after each restart: of each of the 24 customers two.
SOLD = 50
PURCHASE = post_buy({"buyer": "other", "lock": "conditional"})


def program() -> str | None:
    """Return the path of nginx, or None if it is not installed."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Nginx:
    """A running nginx, and the ports of the two nodes behind it; a context manager."""

    def __init__(self, folder: Path, *, nodes: Sequence[int], log: IO[bytes]) -> None:
        self.port = free_port()
        self.folder = folder
        self._nodes = nodes
        self._server = ServerProcess("nginx", log)

    def __enter__(self) -> Self:
        shipped_configuration = (FOLDER / "nginx.conf").read_text()
        own_configuration = shipped_configuration.replace("/tmp/", f"{self.folder}/")
        trusted = f"set_real_ip_from 127.0.0.1; real_ip_header {ADDRESS_HEADER};"
        own_configuration = own_configuration.replace(
            "listen 8080;", f"listen 127.0.0.1:{self.port}; {trusted}"
        )
        assert own_configuration.count(str(self.folder)) >= 7
        assert str(self.port) in own_configuration
        configuration = self.folder / "nginx.conf"
        configuration.write_text(NEW.sub("", own_configuration))
        self._write(down=())
        user = "user root;" if os.geteuid() == 0 else ""  # the folder is this user's
        options = ("-g", f"daemon off; {user}")
        command: list[str | Path] = [program() or "nginx", "-c", configuration, *options]
        embedded.kill_at_exit(self._server.start(command))
        self._server.wait_until(
            lambda: read_whole_answer(self.port, HEALTH).startswith(b"HTTP/1.1 200"), timeout=15
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def workers(self) -> list[psutil.Process]:
        assert self._server.process is not None
        return psutil.Process(self._server.process.pid).children()

    def memory(self) -> int:
        """Return the resident memory of all workers, in bytes."""
        return sum(worker.memory_info().rss for worker in self.workers())

    def temporary_bytes(self) -> int:
        """Return the size of nginx's temporary files, deleted ones that are still open included."""
        open_files = {
            (stat.st_dev, stat.st_ino): stat.st_size
            for worker in self.workers()
            for file in Path(f"/proc/{worker.pid}/fd").glob("*")
            if os.readlink(file).startswith(str(self.folder / ""))
            for stat in [file.stat()]
        }
        return sum(open_files.values())

    def send_nothing_to(self, *nodes: int) -> None:
        """Take these nodes out, by number, and wait until they have no request, as
        rolling_restart.sh does."""
        assert self._server.process is not None
        before = self.workers()
        self._write(down=nodes)
        self._server.process.send_signal(signal.SIGHUP)
        psutil.wait_procs(before, timeout=45)
        assert not any(worker.is_running() for worker in before)

    def _write(self, down: Collection[int]) -> None:
        text = (FOLDER / "nginx.nodes.conf").read_text()
        for number, (name, port) in enumerate(zip(("web-a", "web-b"), self._nodes, strict=True)):
            assert f"server {name}:8000" in text
            is_down = " down" if number in down else ""
            text = text.replace(f"server {name}:8000", f"server 127.0.0.1:{port}{is_down}")
        (self.folder / "nodes.conf").write_text(NEW.sub("", text))


@pytest.fixture(scope="module", params=SERVERS)
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    if program() is None:
        why = "nginx is not installed: apt-get install nginx"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    as_in_production = {"SHOP_MAX_PURCHASES": "92", "SHOP_BEHIND_PROXY": "1"}
    quick = {"SHOP_LOCK_WAIT": "20", "WEB_GRACEFUL_TIMEOUT": "10"}
    with (
        tempfile.TemporaryFile() as log,
        Stack(
            count=2,
            workers=1,
            threads=100,
            log=log,
            server=request.param,
            variables=as_in_production | quick,
        ) as stack,
    ):
        yield stack
        for node in stack.nodes:  # it would answer first those in the crowd who hold the lock
            node.stop(0)


@pytest.fixture(scope="module")
def nginx(stack: Stack) -> Iterator[Nginx]:
    ports = [node.port for node in stack.nodes]
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "log").open("wb") as log,
        Nginx(Path(folder), nodes=ports, log=log) as nginx,
    ):
        yield nginx


def restart(stack: Stack, number: int) -> None:
    node = stack.nodes[number]
    node.stop(15)
    node.start()
    node.wait_until_ready(stack.shop(number))


@pytest.mark.parametrize("announced", [True, False])
def test_restart_of_each_node_loses_no_purchase(
    stack: Stack, nginx: Nginx, announced: bool
) -> None:
    """If a node is taken out first, no answer is `unknown`.

    If it is not, an answer may be `unknown`, and the same key then shows the outcome.
    """
    sale = stack.shop().restock(product="apple", stock=1_000_000)["sale"]
    with Customers(nginx.port) as customers:
        customers.wait_for("sold", SOLD)
        for number in range(2):
            if announced:
                nginx.send_nothing_to(number)
            restart(stack, number)
            customers.wait_for("sold", SOLD)
            if announced:
                nginx.send_nothing_to()
    assert customers.outcomes <= ({"sold"} if announced else {"sold", "unknown"})
    customers.assert_books_are_exact(stack.shop(), sale)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def guess_from(nginx: Nginx, address: str) -> int:
    """Return the status of a guess at the admin's password from this address."""
    head = f"Content-Length: 0\r\n{ADDRESS_HEADER}: {address}\r\nHost:"
    form = get("/admin/login/?next=/admin/").replace(b"GET", b"POST")
    return status_of(read_whole_answer(nginx.port, form.replace(b"Host:", head.encode())))


def test_sixth_guess_at_the_password_is_429(nginx: Nginx) -> None:
    assert [guess_from(nginx, "10.0.0.1") for _ in range(7)] == [403] * 5 + [429] * 2
    assert guess_from(nginx, "10.0.0.2") == 403
    form = get("/admin/login/?next=/admin/")
    assert status_of(read_whole_answer(nginx.port, form)) == 200  # the form itself is no guess


@pytest.mark.parametrize("prefix", ["2001:db8:1:2::", "2001:db8::1:2:3:"])
def test_guesses_of_an_ipv6_network_count_as_one(nginx: Nginx, prefix: str) -> None:
    """Who has one address of a /64 network has all of them."""
    statuses = [guess_from(nginx, f"{prefix}{number}") for number in range(1, 8)]
    assert statuses == [403] * 5 + [429] * 2
    assert guess_from(nginx, "2001:db8:1:3::1") != 429


def test_ipv4_in_ipv6_notation_is_an_address_of_its_own(nginx: Nginx) -> None:
    """All IPv4 addresses in IPv6 notation are in one /64 network."""
    statuses = {guess_from(nginx, f"::ffff:10.1.0.{number}") for number in range(1, 8)}
    assert statuses == {403}


# --- what nginx answers itself --------------------------------------------------------------------


def announce(size: int) -> bytes:
    """Return the head of a purchase that announces a body of this size."""
    return PURCHASE.partition(b"Content-Length")[0] + b"Content-Length: %d\r\n\r\n" % size


@dataclass(frozen=True)
class OwnAnswer:
    """A request that nginx answers without a node, and the expected answer."""

    request: bytes
    status: int
    outcome: str


OWN_ANSWERS = [
    OwnAnswer(b"GARBAGE\r\n\r\n", 400, "error"),
    OwnAnswer(get("/metrics"), 404, "error"),
    OwnAnswer(announce(ANNOUNCED_BYTES), 413, "error"),
    OwnAnswer(get("/" + "a" * 40_000), 414, "error"),
    OwnAnswer(PURCHASE, 503, "unknown"),  # while no node is there
]


#: Headers that are not a promise of the shop, or are new in each answer.
OTHER_HEADERS = {
    "Connection",
    "Content-Length",
    "Content-Type",
    "Date",
    "Server",
    "Transfer-Encoding",
    "Vary",
    "X-Request-ID",
}


@dataclass(frozen=True)
class RawAnswer:
    """An answer, with all values of every header."""

    status: int
    headers: dict[str, list[str]]
    body: Any

    @classmethod
    def read(cls, client: socket.socket) -> Self:
        """Read one answer, but not to the end of the connection.

        nginx may keep the connection open, to discard what else the client sends.
        """
        response = HTTPResponse(client)
        response.begin()
        headers = {name: response.headers.get_all(name, []) for name in response.headers}
        return cls(response.status, headers, json.loads(response.read()))

    @classmethod
    def of(cls, port: int, request: bytes) -> Self:
        with Crowd(1, request).at(port) as (client,):
            return cls.read(client)

    def assert_promised_headers(self, promised: Mapping[str, list[str]]) -> None:
        assert {name: self.headers.get(name) for name in promised} == promised
        assert len(self.headers["X-Request-ID"]) == 1


def test_answers_of_nginx_have_the_shops_form(stack: Stack, nginx: Nginx) -> None:
    """They are JSON with an outcome, and have each header of a node's answer once."""
    of_node = RawAnswer.of(stack.nodes[0].port, HEALTH).headers
    promised = {name: of_node[name] for name in of_node if name not in OTHER_HEADERS}
    assert len(promised) == 7
    nginx.send_nothing_to(0, 1)
    try:
        answers = [RawAnswer.of(nginx.port, case.request) for case in OWN_ANSWERS]
    finally:
        nginx.send_nothing_to()
    for case, answer in zip(OWN_ANSWERS, answers, strict=True):
        answer.assert_promised_headers(promised)
        assert (answer.status, answer.body["outcome"]) == (case.status, case.outcome)
        assert ("Retry-After" in answer.headers) == (case.status == 503)
    for request in (HEALTH, PURCHASE):  # a node's answer: nothing comes twice
        RawAnswer.of(nginx.port, request).assert_promised_headers(promised)


# --- clients that hold something up ---------------------------------------------------------------


def test_large_bodies_are_413_and_held_nowhere(nginx: Nginx) -> None:
    """40 clients announce 15 MB, send 14 MB, and wait."""
    memory = nginx.memory()
    large = Crowd(40, announce(ANNOUNCED_BYTES) + bytes(SENT_BYTES))
    with large.at(nginx.port) as clients:
        assert measure_longest_wait(nginx.port, [HEALTH]) <= SOON
        assert nginx.temporary_bytes() < MEGABYTE
        assert nginx.memory() - memory < 32 * MEGABYTE
        answers = [RawAnswer.read(client) for client in clients]
    assert {answer.status for answer in answers} == {413}
    assert answers[0].body == {
        "outcome": "error",
        "error": "the body is too large",
        "allowed": ["16384 bytes"],
    }


@pytest.mark.parametrize("kind", ["half headers", "half bodies"])
def test_unfinished_request_is_given_up(nginx: Nginx, kind: str) -> None:
    """nginx resets the connection, so that nothing of it remains."""
    with Crowd(1, CROWDS[kind].sends).at(nginx.port) as (client,):
        client.settimeout(20)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


@pytest.mark.parametrize("crowd", CROWDS)
def test_other_requests_are_answered_soon_beside_a_crowd(
    stack: Stack, nginx: Nginx, crowd: str
) -> None:
    allow_connections(CROWDS[crowd].size, process="the crowd", advice="leave this test out")
    for product in ("apple", "queue"):
        stack.shop().restock(product=product, stock=1000)
    questions = [HEALTH, *PAGES, *([PURCHASE] if crowd != "waiting buyers" else [])]
    waits = [inf]
    with CROWDS[crowd].at(nginx.port):
        while waits[-1] > SOON and len(waits) <= TRIES:
            waits.append(measure_longest_wait(nginx.port, questions))
    print(f"{stack.server}: {crowd}: {waits[1:]}")
    assert waits[-1] <= SOON
