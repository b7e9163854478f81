"""Two stock nodes behind nginx with the project's own configuration: slow clients hold up nobody,
and no purchase is lost when a node is restarted."""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Collection, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import IO, Self

import psutil
import pytest

from loadtest.stack.stack import SERVERS, Stack
from loadtest.tests.raw_clients import (
    CROWDS,
    HEALTH,
    PAGES,
    Customers,
    get,
    longest_wait,
    post_buy,
    whole_answer,
)
from servers import embedded
from servers.embedded import ROOT
from servers.loopback import free_port
from servers.process import ServerProcess

FOLDER = ROOT / "deploy" / "docker"
#: Directives that nginx knows only since 1.27: to ask for names again, and a milder reload.
NEW = re.compile(r" resolve\b|^ *keepalive_min_timeout .*\n", re.MULTILINE)
#: Seconds.
SOON = 0.5
#: How often a busy machine may be slow. A server that is held up is so each time.
TRIES = 5
#: Purchases before and after each restart: of each of the 24 customers two.
SOLD = 50
PURCHASE = post_buy({"buyer": "other", "lock": "conditional"})


def program() -> str | None:
    """Where nginx is; None where it is not installed."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Nginx:
    """One nginx, and the ports of the two nodes behind it. A context manager."""

    def __init__(self, folder: Path, *, nodes: Sequence[int], log: IO[bytes]) -> None:
        self.port = free_port()
        self.folder = folder
        self._nodes = nodes
        self._server = ServerProcess("nginx", log)

    def __enter__(self) -> Self:
        found = (FOLDER / "nginx.conf").read_text()
        here = found.replace("/tmp/", f"{self.folder}/")
        here = here.replace("listen 8080;", f"listen 127.0.0.1:{self.port};")
        assert here.count(str(self.folder)) >= 7
        assert str(self.port) in here
        configuration = self.folder / "nginx.conf"
        configuration.write_text(NEW.sub("", here))
        self._write(down=())
        user = "user root;" if os.geteuid() == 0 else ""  # the folder is this user's
        options = ("-g", f"daemon off; {user}")
        command: list[str | Path] = [program() or "nginx", "-c", configuration, *options]
        embedded.adopt(self._server.start(command))
        self._server.wait_until(
            lambda: whole_answer(self.port, HEALTH).startswith(b"HTTP/1.1 200"), timeout=15
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def send_nothing_to(self, *nodes: int) -> None:
        """Take these nodes out, by number, and wait until nothing is under way to them, as
        rolling_restart.sh does."""
        assert self._server.process is not None
        before = psutil.Process(self._server.process.pid).children()
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
def test_a_restart_of_each_node_loses_no_purchase_and_of_one_taken_out_first_none_is_unknown(
    stack: Stack, nginx: Nginx, announced: bool
) -> None:
    """Unannounced, an answer may be `unknown`: its key says what became of it."""
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


def test_of_guesses_at_the_admins_password_five_pass_and_the_next_is_429(nginx: Nginx) -> None:
    form = get("/admin/login/?next=/admin/")
    guess = form.replace(b"GET", b"POST").replace(b"Host:", b"Content-Length: 0\r\nHost:")

    def status(asked: bytes) -> bytes:
        return whole_answer(nginx.port, asked).split(b" ", 2)[1]

    assert [status(guess) for _ in range(7)] == [b"403"] * 5 + [b"429"] * 2
    assert status(form) == b"200"  # the form itself is no guess


@pytest.mark.parametrize("crowd", CROWDS)
def test_others_are_answered_soon_beside_200_or_more(
    stack: Stack, nginx: Nginx, crowd: str
) -> None:
    for product in ("apple", "queue"):
        stack.shop().restock(product=product, stock=1000)
    questions = [HEALTH, *PAGES, *([PURCHASE] if crowd != "waiting buyers" else [])]
    waits = [inf]
    with CROWDS[crowd].at(nginx.port):
        while waits[-1] > SOON and len(waits) <= TRIES:
            waits.append(longest_wait(nginx.port, questions))
    print(f"{stack.server}: {crowd}: {waits[1:]}")
    assert waits[-1] <= SOON
