"""A target whose buyers wait until a test releases them, and Locust processes that buy there.

The file `hold-prepare` makes buyers wait in prepare(), and the file `hold-buy` in buy(). If a file
contains "0", the buyers with even numbers wait. If it contains "1", those with odd numbers wait.
The test releases the buyers by removing the file.
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

from loadtest.stack.node import make_child_environment
from loadtest.stack.stack import ROOT
from loadtest.target import ask
from servers.loopback import find_free_port
from servers.process import ServerProcess
from servers.tests.polling import eventually

#: The source of the target. If Locust has two workers, worker 0 has the buyers with even numbers,
#: and worker 1 those with odd numbers. So a test can hold the buyers of one worker.
TARGET_SOURCE = """
import os, time
from pathlib import Path
from loadtest.tests.cart_shop import *

FOLDER = Path(__file__).parent


def record_pid_and_wait(buyer, method):
    (FOLDER / f"{method}-{buyer.number}").write_text(str(os.getpid()))
    while is_held(buyer, method):
        time.sleep(0.02)


def is_held(buyer, method):
    # The test may remove the file between a check of its existence and the read, so the error is
    # handled. Otherwise the rush would count it as a request without an answer.
    try:
        held_parity = (FOLDER / f"hold-{method}").read_text()
    except FileNotFoundError:
        return False
    return str(buyer.number % 2) == held_parity


class HeldCartShop(CartShop):
    name = "held"

    def open(self, stock):
        super().open(stock)
        self.opened_by = os.getpid()

    def prepare(self, buyer):
        print("a target may print")
        assert self.opened_by  # an attribute that open() sets exists in every Locust process
        super().prepare(buyer)
        record_pid_and_wait(buyer, "prepare")

    def buy(self, buyer):
        for client in buyer.client.client.clientpool.clients.values():
            hold_before_sending(client._connection_pool, buyer)
        return super().buy(buyer)


def hold_before_sending(pool, buyer):
    # After the barrier, at which all buyers wait for each other, and before a request is sent, the
    # pool checks that the buyer's connection is still open.
    is_open = pool._is_socket_alive

    def wait_and_check(socket):
        record_pid_and_wait(buyer, "buy")
        return is_open(socket)

    pool._is_socket_alive = wait_and_check
"""


@contextmanager
def run_shop(
    folder: Path, mode: str = "honest", *, module: str = "loadtest.tests.cart_shop"
) -> Iterator[str]:
    """Start the shop of a module, and yield its address.

    folder  the folder for the shop's log
    mode    the shop's behavior: a mode of cart_shop or a design of design_shop
    """
    port = find_free_port()
    with (folder / "shop.log").open("wb") as log:
        process = ServerProcess("the shop", log)
        command = [sys.executable, "-m", module, str(port), mode]
        process.start(command, folder=ROOT)
        address = f"http://127.0.0.1:{port}"
        try:
            # The answer is put into a list, because a stock of 0 alone would count as no answer.
            process.wait_until(lambda: [ask(f"{address}/stock")], timeout=20)
            yield address
        finally:
            process.stop()


class HeldTarget:
    """A target that makes half of its buyers wait in one of its methods, prepare() or buy().

    In prepare() they wait at the end, and in buy() just before the request is sent. When a buyer,
    waiting or not, gets there, it writes the pid of its process to the file `prepare-NUMBER` or
    `buy-NUMBER`.

    target         the target's file
    held_parities  method -> which buyers wait in it: "0" for even numbers, "1" for odd numbers
    """

    def __init__(self, folder: Path, **held_parities: str) -> None:  # such as buy="0"
        self.folder = folder
        self.target = folder / "my_shop.py"
        self.target.write_text(TARGET_SOURCE)
        for method, parity in held_parities.items():
            (folder / f"hold-{method}").write_text(parity)

    def wait_for_buyers(self, method: str, parity: int) -> int:
        """Wait until four buyers of a process have written its pid in a method. Return the pid.

        method  prepare or buy
        parity  0 for buyers with even numbers, 1 for those with odd numbers
        """

        def read_pids() -> list[str]:
            paths = self.folder.glob(f"{method}-*")
            pids = [
                path.read_text()
                for path in paths
                if int(path.name.rpartition("-")[2]) % 2 == parity
            ]
            return [pid for pid in pids if pid]  # empty until the buyer has written it

        eventually(
            lambda: len(read_pids()) >= 4,  # half of the eight buyers have this parity
            what=f"4 buyers wait in {method}()",
            timeout=60,
        )
        (pid,) = set(read_pids())  # buyers with the same parity are in the same process
        return int(pid)

    def release_buyers(self, method: str) -> None:
        """Let all buyers that wait in this method continue."""
        (self.folder / f"hold-{method}").unlink()


class HeldLocust(HeldTarget):
    """Processes of Locust's own command that run rushes on a HeldTarget; a context manager.

    host         the address of the shop
    master_port  the port at which a master listens for workers
    web_port     the port of the web UI
    """

    def __init__(self, folder: Path, host: str, **held_parities: str) -> None:
        super().__init__(folder, **held_parities)
        self.host = host
        self.master_port = find_free_port()
        self.web_port = find_free_port()
        self.result_file = folder / "result.json"
        self.log_file = folder / "locust.log"
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        print(self.log_file.read_text())  # pytest shows what a failed test printed
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a Locust process with these options, and with those that all processes need."""
        port = str(self.master_port)
        ports = ("--master-port", port, "--master-bind-port", port)
        target = ("--target", str(self.target), "--host", self.host)
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "locust", *target, *ports, "--only-summary", *options],
                cwd=ROOT,
                env=make_child_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start_rush(self, *options: str, buyers: int = 8) -> subprocess.Popen[bytes]:
        """Start a master without the web UI, which runs one rush for three units.

        With the options `--processes N`, the master starts its workers. With `--master` and
        `--expect-workers N`, it waits for the workers that start_workers() starts.
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
            str(self.result_file),
            *options,
        )

    def start_workers(self, count: int = 2) -> list[subprocess.Popen[bytes]]:
        return [self.start("--worker") for _ in range(count)]

    def start_web_ui(self) -> subprocess.Popen[bytes]:
        """Start a master with the web UI."""
        options = ("--web-port", str(self.web_port), "--master")
        return self.start(*options, "--result", str(self.result_file))

    def wait_for_workers(self, count: int, *states: str) -> None:
        """Wait until the web UI shows `count` workers, and one of these states of the rush."""
        url = f"http://127.0.0.1:{self.web_port}/stats/requests"

        def has_workers() -> bool:
            try:
                with urlopen(url, timeout=10) as response:
                    statistics = json.load(response)
            except OSError:
                return False
            return len(statistics["workers"]) == count and statistics["state"] in states

        eventually(
            has_workers,
            what=f"{count} workers, and a rush in one of {states}",
            timeout=60,
        )

    def start_rush_by_web_ui(self) -> None:
        """Start a rush through the web UI: eight buyers, three units, a deadline of 40 s."""
        form = {"user_count": 8, "spawn_rate": 100, "stock": 3, "deadline": 40}
        url = f"http://127.0.0.1:{self.web_port}/swarm"
        with urlopen(url, urlencode(form).encode(), timeout=30) as response:
            assert json.load(response)["success"]

    def wait_until_logged(self, text: str) -> None:
        eventually(lambda: text in self.log_file.read_text(), what=text, timeout=60)

    def take_result(self) -> dict[str, Any]:
        """Wait for the result file of a rush, remove it, and return its content."""
        eventually(
            lambda: self.result_file.exists() and self.result_file.read_text().endswith("}"),
            what="the result file is complete",
            timeout=60,
        )
        run = dict(json.loads(self.result_file.read_text()))
        self.result_file.unlink()
        return run
