"""Two nodes of the shop behind nginx, with the configuration that the project ships.

Buyers are served quickly while slow clients are connected, and no purchase is lost when a node is
restarted.
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
from pathlib import Path
from typing import IO, Any, Self

import psutil
import pytest

from loadtest.stack.open_files import raise_file_limit
from loadtest.stack.stack import SERVERS, Stack
from loadtest.tests.raw_clients import (
    CROWDS,
    HEALTH,
    PAGES,
    Crowd,
    Customers,
    build_get,
    build_purchase,
    measure_longest_wait,
    read_whole_answer,
)
from servers import embedded
from servers.embedded import ROOT
from servers.loopback import find_free_port
from servers.process import ServerProcess

CONFIGURATION_FOLDER = ROOT / "deploy" / "docker"
#: Directives that need nginx 1.27. The tests remove them, because the installed nginx may be older.
#: `resolve` is for nodes whose IP addresses change. In these tests they do not change.
#: `keepalive_min_timeout` is for clients that reuse a connection during a reload. The clients of
#: these tests use each connection for one request.
DIRECTIVES_OF_1_27 = re.compile(r" resolve\b|^ *keepalive_min_timeout .*\n", re.MULTILINE)
#: The header from which nginx takes the address of a client, in these tests only.
ADDRESS_HEADER = "X-Test-Address"
LOGIN_PATH = "/admin/login/?next=/admin/"
#: docs/production.md promises an answer within this time.
PROMISED_SECONDS = 0.5
#: The Content-Length of a large body, and how many of these bytes the client sends.
ANNOUNCED_BYTES = 15_000_000
SENT_BYTES = 14_000_000
MEGABYTE = 1_000_000
#: How often the answer times are measured. On a busy machine some measurements are slow. If a crowd
#: (many slow clients) blocks nginx, every measurement is slow.
MEASUREMENTS = 5
#: nginx accepts this many log-ins of one address at once, and answers 429 to the next ones.
ACCEPTED_LOGINS = 5
#: How many units are sold before each restart and after it: about two for each of the 24 customers.
PURCHASES_AROUND_RESTART = 50
#: A purchase whose answer is timed while a crowd is connected.
PURCHASE = build_purchase({"buyer": "other", "lock": "conditional"})


def find_nginx() -> str | None:
    """Return the path of nginx, or None if it is not installed."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Nginx:
    """A running nginx in front of two nodes; a context manager.

    folder      the folder for its configuration and its temporary files
    node_ports  the ports of the nodes
    log         the file for nginx's output
    """

    def __init__(self, folder: Path, *, node_ports: Sequence[int], log: IO[bytes]) -> None:
        self.port = find_free_port()
        self.folder = folder
        self._node_ports = node_ports
        self._server = ServerProcess("nginx", log)

    def __enter__(self) -> Self:
        configuration_file = self._write_configuration()
        self._write_nodes(without=())
        # If root runs the tests, the user that nginx takes by default cannot write to the folder.
        user = "user root;" if os.geteuid() == 0 else ""
        options = ("-g", f"daemon off; {user}")
        command: list[str | Path] = [find_nginx() or "nginx", "-c", configuration_file, *options]
        embedded.kill_at_exit(self._server.start(command))
        self._server.wait_until(
            lambda: read_whole_answer(self.port, HEALTH).startswith(b"HTTP/1.1 200"), timeout=15
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def find_workers(self) -> list[psutil.Process]:
        assert self._server.process is not None
        return psutil.Process(self._server.process.pid).children()

    def measure_memory(self) -> int:
        """Return the resident memory of all workers, in bytes."""
        return sum(worker.memory_info().rss for worker in self.find_workers())

    def measure_temporary_files(self) -> int:
        """Return the size of nginx's open temporary files, even of deleted ones, in bytes."""
        bytes_by_file: dict[tuple[int, int], int] = {}
        for worker in self.find_workers():
            for file in Path(f"/proc/{worker.pid}/fd").glob("*"):
                if os.readlink(file).startswith(str(self.folder)):
                    stat = file.stat()
                    bytes_by_file[stat.st_dev, stat.st_ino] = stat.st_size
        return sum(bytes_by_file.values())

    def reload(self, *, without: Collection[int] = ()) -> None:
        """Reload nginx, and wait until the old workers have answered all their requests.

        without  the numbers of the nodes that get no request afterwards, as in rolling_restart.sh
        """
        assert self._server.process is not None
        old_workers = self.find_workers()
        self._write_nodes(without=without)
        self._server.process.send_signal(signal.SIGHUP)
        psutil.wait_procs(old_workers, timeout=45)
        assert not any(worker.is_running() for worker in old_workers)

    def _write_configuration(self) -> Path:
        """Write a copy of the shipped configuration for this folder and port. Return its path."""
        text = (CONFIGURATION_FOLDER / "nginx.conf").read_text()
        assert text.count("/tmp/") == 7  # the pid file, five folders and nodes.conf
        assert "listen 8080;" in text
        text = text.replace("/tmp/", f"{self.folder}/")
        # The tests send a client's address in a header, so that they can act as many clients.
        address_directives = f"set_real_ip_from 127.0.0.1; real_ip_header {ADDRESS_HEADER};"
        text = text.replace("listen 8080;", f"listen 127.0.0.1:{self.port}; {address_directives}")
        configuration_file = self.folder / "nginx.conf"
        configuration_file.write_text(DIRECTIVES_OF_1_27.sub("", text))
        return configuration_file

    def _write_nodes(self, without: Collection[int]) -> None:
        """Write nginx's list of nodes, in which the nodes in `without` are marked as down."""
        text = (CONFIGURATION_FOLDER / "nginx.nodes.conf").read_text()
        names = ("web-a", "web-b")
        for number, (name, port) in enumerate(zip(names, self._node_ports, strict=True)):
            assert f"server {name}:8000" in text
            down = " down" if number in without else ""
            text = text.replace(f"server {name}:8000", f"server 127.0.0.1:{port}{down}")
        (self.folder / "nodes.conf").write_text(DIRECTIVES_OF_1_27.sub("", text))


@pytest.fixture(scope="module", params=SERVERS)
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Start two nodes with the settings of production, except for shorter timeouts."""
    if find_nginx() is None:
        message = "nginx is not installed: apt-get install nginx"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    # 92 of the 100 threads may serve purchases, and 8 are left for other requests.
    production_settings = {"SHOP_MAX_PURCHASES": "92", "SHOP_BEHIND_PROXY": "1"}
    short_timeouts = {"SHOP_LOCK_WAIT": "20", "WEB_GRACEFUL_TIMEOUT": "10"}
    with (
        tempfile.TemporaryFile() as log,
        Stack(
            node_count=2,
            workers=1,
            threads=100,
            log=log,
            server=request.param,
            variables=production_settings | short_timeouts,
        ) as stack,
    ):
        yield stack
        for node in stack.nodes:
            # Kill the node at once. Otherwise it would finish the purchases of the crowd (many slow
            # clients) in the last test, which take 5 s each.
            node.stop(0)


@pytest.fixture(scope="module")
def nginx(stack: Stack) -> Iterator[Nginx]:
    """Start nginx in front of the two nodes."""
    ports = [node.port for node in stack.nodes]
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "log").open("wb") as log,
        Nginx(Path(folder), node_ports=ports, log=log) as nginx,
    ):
        yield nginx


def restart(stack: Stack, number: int) -> None:
    """Restart a node, and wait until it is ready. It has 15 s to finish the purchases it began."""
    node = stack.nodes[number]
    node.stop(15)
    node.start()
    node.wait_until_ready(stack.shop(number))


@pytest.mark.parametrize("is_removed_from_nginx", [True, False])
def test_restart_of_each_node_loses_no_purchase(
    stack: Stack, nginx: Nginx, is_removed_from_nginx: bool
) -> None:
    """Customers buy through nginx while each node is restarted. Each purchase has one order.

    If nginx stops sending requests to a node before its restart, no answer is `unknown`. Otherwise
    an answer may be `unknown`. The customer then repeats the request with the same key, and is
    answered `sold`.
    """
    sale = stack.shop().restock(product="apple", stock=1_000_000)["sale"]
    with Customers(nginx.port) as customers:
        customers.wait_for("sold", PURCHASES_AROUND_RESTART)
        for number in range(2):
            if is_removed_from_nginx:
                nginx.reload(without=[number])
            restart(stack, number)
            customers.wait_for("sold", PURCHASES_AROUND_RESTART)
            if is_removed_from_nginx:
                nginx.reload()
    assert customers.outcomes <= ({"sold"} if is_removed_from_nginx else {"sold", "unknown"})
    customers.assert_sale_is_exact(stack.shop(), sale)


def parse_status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def send_login(nginx: Nginx, address: str) -> int:
    """Send a log-in to the admin, as an attacker who guesses the password. Return the status.

    The shop answers 403, because the log-in has no CSRF token. After ACCEPTED_LOGINS from this
    address nginx answers 429, and does not forward the request to the shop.

    address  the client's address, which nginx takes from a header
    """
    login = (
        f"POST {LOGIN_PATH} HTTP/1.1\r\nHost: localhost\r\n{ADDRESS_HEADER}: {address}\r\n"
        "Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
    return parse_status(read_whole_answer(nginx.port, login.encode()))


def test_sixth_guess_at_the_password_is_refused(nginx: Nginx) -> None:
    """nginx counts the guesses of each address, and does not count a GET of the form."""
    statuses = [send_login(nginx, "10.0.0.1") for _ in range(ACCEPTED_LOGINS + 2)]
    assert statuses == [403] * ACCEPTED_LOGINS + [429] * 2
    assert send_login(nginx, "10.0.0.2") == 403
    form = read_whole_answer(nginx.port, build_get(LOGIN_PATH))
    assert parse_status(form) == 200, "reading the form should not count as a guess"


@pytest.mark.parametrize("prefix", ["2001:db8:1:2::", "2001:db8::1:2:3:"])
def test_guesses_from_one_ipv6_network_are_counted_together(nginx: Nginx, prefix: str) -> None:
    """Seven addresses of one /64 network send a guess each. nginx refuses the last two.

    A client with one address of a /64 network can usually use all its addresses.
    """
    addresses = [f"{prefix}{number}" for number in range(ACCEPTED_LOGINS + 2)]
    statuses = [send_login(nginx, address) for address in addresses]
    assert statuses == [403] * ACCEPTED_LOGINS + [429] * 2
    address_of_another_network = "2001:db8:1:3::1"
    assert send_login(nginx, address_of_another_network) != 429


def test_ipv4_addresses_in_ipv6_notation_are_limited_separately(nginx: Nginx) -> None:
    """Seven IPv4 addresses in IPv6 notation send a guess each. nginx refuses none of them.

    They are all in the network ::/64, but they belong to different visitors.
    """
    addresses = [f"::ffff:10.1.0.{number}" for number in range(ACCEPTED_LOGINS + 2)]
    assert {send_login(nginx, address) for address in addresses} == {403}


# --- answers of nginx itself ----------------------------------------------------------------------


def build_purchase_head(body_size: int) -> bytes:
    """Return the headers of a purchase with this Content-Length."""
    return PURCHASE.partition(b"Content-Length")[0] + b"Content-Length: %d\r\n\r\n" % body_size


@dataclass(frozen=True)
class RequestToNginx:
    """A request that nginx answers itself, with the status and the outcome of that answer."""

    request: bytes
    status: int
    outcome: str


REQUESTS_TO_NGINX = [
    RequestToNginx(b"GARBAGE\r\n\r\n", 400, "error"),
    RequestToNginx(build_get("/metrics"), 404, "error"),
    RequestToNginx(build_purchase_head(ANNOUNCED_BYTES), 413, "error"),
    RequestToNginx(build_get("/" + "a" * 40_000), 414, "error"),
    RequestToNginx(PURCHASE, 503, "unknown"),  # when all nodes are marked as down
]


#: Headers that need not be the same in an answer of nginx and in an answer of a node.
VARYING_HEADERS = {
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
    """An HTTP answer, with all values of every header."""

    status: int
    headers: dict[str, list[str]]
    body: Any

    @classmethod
    def read(cls, client: socket.socket) -> Self:
        """Read one answer, without waiting until nginx closes the connection.

        nginx may keep the connection open, to read and discard the rest of the request.
        """
        response = HTTPResponse(client)
        response.begin()
        headers = {name: response.headers.get_all(name, []) for name in response.headers}
        return cls(response.status, headers, json.loads(response.read()))

    @classmethod
    def request(cls, port: int, request: bytes) -> Self:
        """Send a request on a new connection, and return the answer."""
        with Crowd(1, request).connect(port) as (client,):
            return cls.read(client)

    def assert_has_headers(self, expected: Mapping[str, list[str]]) -> None:
        """Assert that the answer has these headers with exactly these values, and one X-Request-ID.

        The value of X-Request-ID differs in each answer.
        """
        assert {name: self.headers.get(name) for name in expected} == expected
        assert len(self.headers["X-Request-ID"]) == 1


def test_answers_of_nginx_look_like_those_of_the_shop(stack: Stack, nginx: Nginx) -> None:
    """An answer that nginx gives without a node is JSON with an outcome.

    All answers through nginx have the headers that a node sends, and have each of them once.
    """
    node_headers = RawAnswer.request(stack.nodes[0].port, HEALTH).headers
    common_headers = {
        name: values for name, values in node_headers.items() if name not in VARYING_HEADERS
    }
    assert len(common_headers) == 7, "a node should send the headers that nginx.conf adds"
    nginx.reload(without=[0, 1])
    try:
        answers = [RawAnswer.request(nginx.port, sample.request) for sample in REQUESTS_TO_NGINX]
    finally:
        nginx.reload()
    for sample, answer in zip(REQUESTS_TO_NGINX, answers, strict=True):
        answer.assert_has_headers(common_headers)
        assert (answer.status, answer.body["outcome"]) == (sample.status, sample.outcome)
        assert ("Retry-After" in answer.headers) == (sample.status == 503)
    for request in (HEALTH, PURCHASE):
        RawAnswer.request(nginx.port, request).assert_has_headers(common_headers)


# --- slow clients and large requests --------------------------------------------------------------


def test_large_bodies_are_refused_and_not_stored(nginx: Nginx) -> None:
    """40 clients each send a Content-Length of 15 MB and 14 MB of the body, and wait.

    nginx answers 413 to all of them. It keeps only a small part of these 560 MB in memory and in
    temporary files, and answers other clients within PROMISED_SECONDS.
    """
    memory_before = nginx.measure_memory()
    crowd = Crowd(40, build_purchase_head(ANNOUNCED_BYTES) + bytes(SENT_BYTES))
    with crowd.connect(nginx.port) as clients:
        assert measure_longest_wait(nginx.port, [HEALTH]) <= PROMISED_SECONDS
        assert nginx.measure_temporary_files() < MEGABYTE
        assert nginx.measure_memory() - memory_before < 32 * MEGABYTE
        answers = [RawAnswer.read(client) for client in clients]
    assert {answer.status for answer in answers} == {413}
    assert answers[0].body == {
        "outcome": "error",
        "error": "the body is too large",
        "allowed": ["16384 bytes"],
    }


@pytest.mark.parametrize("kind", ["half headers", "half bodies"])
def test_nginx_resets_the_connection_of_an_unfinished_request(nginx: Nginx, kind: str) -> None:
    """A client sends half of a request and waits. nginx resets its connection within 20 s.

    A connection that is reset, and not closed, occupies no memory afterwards.
    """
    with Crowd(1, CROWDS[kind].bytes_sent).connect(nginx.port) as (client,):
        client.settimeout(20)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


@pytest.mark.parametrize("crowd", CROWDS)
def test_other_requests_are_answered_soon_beside_a_crowd(
    stack: Stack, nginx: Nginx, crowd: str
) -> None:
    """While a crowd is connected, other requests are answered within PROMISED_SECONDS.

    A crowd is a group of slow clients. On a busy machine some measurements may be slow, so it is
    enough if one of the MEASUREMENTS is quick.
    """
    raise_file_limit(CROWDS[crowd].size, process="the crowd", advice="leave this test out")
    for product in ("apple", "queue"):
        stack.shop().restock(product=product, stock=1000)
    requests = [HEALTH, *PAGES]
    if crowd != "waiting buyers":  # the nodes allow no purchase besides those of this crowd
        requests.append(PURCHASE)
    longest_waits: list[float] = []
    with CROWDS[crowd].connect(nginx.port):
        for _ in range(MEASUREMENTS):
            longest_waits.append(measure_longest_wait(nginx.port, requests))
            if longest_waits[-1] <= PROMISED_SECONDS:
                break
    print(f"{stack.server}: {crowd}: {longest_waits}")
    assert longest_waits[-1] <= PROMISED_SECONDS, "one measurement should be quick"
