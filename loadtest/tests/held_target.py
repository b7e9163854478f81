"""A target that holds its buyers until a test lets them go, and Locust processes that rush it.

A held buyer continues when the test removes the file that holds it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import urlopen

from loadtest.stack.node import inherited_environment
from loadtest.stack.stack import ROOT
from loadtest.target import ask
from servers.loopback import free_port
from servers.process import ServerProcess
from servers.tests.polling import eventually

#: Every buyer whose number is odd has worker 1 where there are two.
TARGET = """
import os, time
from pathlib import Path
from loadtest.tests.cart_shop import *

FOLDER = Path(__file__).parent


def wait(buyer, place):
    (FOLDER / f"{place}-{buyer.number}").write_text(str(os.getpid()))
    while is_held(buyer, place):
        time.sleep(0.02)


def is_held(buyer, place):
    # The test may remove the file at any time, so that it must be read in one step. An OSError
    # would count as a request without an answer.
    try:
        held_parities = (FOLDER / f"hold-{place}").read_text()
    except FileNotFoundError:
        return False
    return str(buyer.number % 2) in held_parities


class Steered(CartShop):
    name = "steered"

    def open(self, stock):
        super().open(stock)
        self.opened_by = os.getpid()

    def prepare(self, buyer):
        print("a target may print")
        assert self.opened_by  # what open() set is known in every process
        super().prepare(buyer)
        wait(buyer, "prepare")

    def buy(self, buyer):
        # It is released where its connection is taken, and held between that and its bytes.
        for client in buyer.client.client.clientpool.clients.values():
            hold(client._connection_pool, buyer)
        return super().buy(buyer)


def hold(pool, buyer):
    is_open = pool._is_socket_alive

    def wait_and_look(socket):
        wait(buyer, "buy")
        return is_open(socket)

    pool._is_socket_alive = wait_and_look
"""


@contextmanager
def cart_shop(
    folder: Path, mode: str = "honest", *, module: str = "loadtest.tests.cart_shop"
) -> Iterator[str]:
    """Start the shop of a module in one of its modes, and yield its address."""
    port = free_port()
    with (folder / "shop.log").open("wb") as log:
        process = ServerProcess("the shop", log)
        command = [sys.executable, "-m", module, str(port), mode]
        process.start(command, folder=ROOT)
        address = f"http://127.0.0.1:{port}"
        try:
            process.wait_until(lambda: [ask(f"{address}/stock")], timeout=20)
            yield address
        finally:
            process.stop()


class HeldTarget:
    """A target that records how far its buyers are in a folder, and holds some of them.

    hold  "prepare" or "buy", and the buyers who are held there: "0" even numbers, "1" odd numbers
    """

    def __init__(self, folder: Path, **hold: str) -> None:
        self.folder = folder
        self.target = folder / "my_shop.py"
        self.target.write_text(TARGET)
        for place, parity in hold.items():
            (folder / f"hold-{place}").write_text(parity)

    def until_there(self, place: str, parity: int, count: int = 4) -> int:
        """Wait until this many buyers have reached a place, and return the pid of their process."""

        def there() -> list[Path]:
            paths = list(self.folder.glob(f"{place}-*"))
            return [path for path in paths if int(path.name.rpartition("-")[2]) % 2 == parity]

        eventually(
            lambda: len([path for path in there() if path.read_text()]) >= count,
            what=f"{count} buyers are at {place}",
            timeout=60,
        )
        (pid,) = {int(path.read_text()) for path in there()}
        return pid

    def go_on(self, place: str) -> None:
        """Let the buyers who are held at this place continue."""
        (self.folder / f"hold-{place}").unlink()


class HeldLocust(HeldTarget):
    """Processes of Locust's own command that rush a HeldTarget; a context manager."""

    def __init__(self, folder: Path, host: str, **hold: str) -> None:
        super().__init__(folder, **hold)
        self.host = host
        self.port, self.web = free_port(), free_port()
        self.result = folder / "result.json"
        self.log = folder / "locust.log"
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        print(self.log.read_text())  # pytest shows what a failed test printed
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a Locust process with these options besides the common ones."""
        ports = ("--master-port", str(self.port), "--master-bind-port", str(self.port))
        target = ("--target", str(self.target), "--host", self.host)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "locust", *target, *ports, "--only-summary", *options],
                cwd=ROOT,
                env=inherited_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def headless(self, *options: str, buyers: int = 8) -> subprocess.Popen[bytes]:
        """Start a master that opens a rush once it has two workers.

        With --processes among the options it starts its own workers.
        """
        return self.start(
            "--headless",
            "-u",
            str(buyers),
            "-r",
            "100",
            "--stock",
            "3",
            "--deadline",
            "40",
            "--result",
            str(self.result),
            *options,
        )

    def workers(self, count: int = 2) -> list[subprocess.Popen[bytes]]:
        return [self.start("--worker") for _ in range(count)]

    def page(self) -> subprocess.Popen[bytes]:
        """Start a master with the web UI."""
        return self.start("--web-port", str(self.web), "--master", "--result", str(self.result))

    def wait_for_workers(self, count: int, *states: str) -> None:
        """Wait until the web UI shows this many workers, in one of these states."""

        def is_so() -> bool:
            try:
                with urlopen(f"http://127.0.0.1:{self.web}/stats/requests", timeout=10) as answer:
                    statistics = json.load(answer)
            except OSError:
                return False
            return len(statistics["workers"]) == count and statistics["state"] in states

        eventually(is_so, what=f"{count} workers, {states}", timeout=60)

    def swarm(self) -> None:
        """Start a rush by a request to the web UI."""
        form = {"user_count": 8, "spawn_rate": 100, "stock": 3, "deadline": 40}
        url = f"http://127.0.0.1:{self.web}/swarm"
        with urlopen(url, urlencode(form).encode(), timeout=30) as answer:
            assert json.load(answer)["success"]

    def until_logged(self, text: str) -> None:
        eventually(lambda: text in self.log.read_text(), what=text, timeout=60)

    def run(self) -> dict[str, Any]:
        """Wait for the result of a rush, remove its file and return it."""
        eventually(
            lambda: self.result.exists() and self.result.read_text().endswith("}"),
            what="a result",
            timeout=60,
        )
        run = dict(json.loads(self.result.read_text()))
        self.result.unlink()
        return run
