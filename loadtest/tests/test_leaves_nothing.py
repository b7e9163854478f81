"""However a command ends, its processes end, or stay registered until the next command ends them.

The commands here are real (`python -m loadtest`, its stack, its embedded servers), but for the
nodes: these ignore SIGTERM, so that stopping takes its time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtest.stack.stack import Node, Stack
from loadtest.tests.checkout import assert_nothing_is_left, fresh_copy, fresh_environment, start
from servers.tests.proxied import eventually

#: Prints each line of its input, until that ends.
COMMAND = """
import sys
from pathlib import Path
from loadtest import __main__ as program
from loadtest.stack import stack
from servers import process

process.STOP_TIMEOUT = stack.STOP_TIMEOUT = float(sys.argv[1])
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(600)"

class StubbornNode(stack.Node):
    def command(self):
        return [sys.executable, "-uc", STUBBORN, str(stack.ROOT)]

    def wait_until_ready(self, shop):
        self._server.wait_until(lambda: "up" in self._server.tail(), timeout=20)

class StubbornStack(stack.Stack):
    node_class = StubbornNode

    def _own_database(self):
        self._is_migrated = True
        return "postgresql://nobody-asks"

def run(setting, console):
    from loadtest.commands.run import Progress
    with (
        open(stack.ROOT / "run.log", "wb") as log,
        Progress(console, verbose=False) as progress,
        StubbornStack(nodes=2, workers=1, threads=1, log=log, progress=progress) as running,
    ):
        console.print("ready")
        for line in sys.stdin:
            console.print(line)
    return 0

program.COMMANDS["demo"] = run
sys.exit(program.main([]))
"""
#: Uses the servers until its input ends, so that not every command has to start them.
HOLDER = (
    "import sys; from servers import embedded; embedded.attach(); print('up'); sys.stdin.read()"
)


class Command:
    """One such command in a checkout, and what it printed."""

    def __init__(
        self, root: Path, *, ignoring: signal.Signals | None = None, stop_timeout: float = 0.5
    ) -> None:
        self.root = root
        self.printed = ""
        self.process = subprocess.Popen(
            [sys.executable, "-uc", COMMAND, str(stop_timeout)],
            cwd=root,
            env=fresh_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=None if ignoring is None else lambda: ignore(ignoring),
        )

    def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed += line
            if text in line:
                return
        raise AssertionError(f"it never printed {text!r}: {self.printed}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop_reading(self) -> None:
        """As `| head -1` does, and `| tee` after Ctrl-C."""
        assert self.process.stdout is not None
        self.process.stdout.close()

    def print_something(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("something\n")
        self.process.stdin.flush()

    def end(self) -> int:
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            self.printed += self.process.stdout.read()
            self.process.stdout.close()
        code = self.process.wait(30)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return code


def ignore(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)


# --- the ways in which a command ends -----------------------------------------------------------


def ctrl_c(command: Command) -> None:
    command.send(signal.SIGINT)
    assert command.end() == 130
    assert "stopping: node A, node B, at most" in command.printed
    assert command.printed.endswith("stopped; everything that was started is stopped too\n")


def ctrl_c_twice(command: Command) -> None:
    command.send(signal.SIGINT)
    command.read_until("stopping: node A, node B")
    command.send(signal.SIGINT)
    assert command.end() == 130
    assert command.printed.count("stopping: node ") >= 2, "the second one was answered"


def sigterm_twice(command: Command) -> None:
    command.send(signal.SIGTERM)
    command.read_until("stopping: node A, node B")
    command.send(signal.SIGTERM)
    assert command.end() == 128 + signal.SIGTERM


def closed_terminal(command: Command) -> None:
    command.stop_reading()
    command.send(signal.SIGHUP)
    assert command.end() == 128 + signal.SIGHUP


def closed_pipe(command: Command) -> None:
    command.stop_reading()
    command.print_something()
    assert command.end() == 1


def ctrl_c_and_closed_pipe(command: Command) -> None:
    command.stop_reading()
    command.send(signal.SIGINT)
    command.end()


def end_of_its_work(command: Command) -> None:
    assert command.process.stdin is not None
    command.process.stdin.close()
    assert command.end() == 0


ENDINGS: list[Callable[[Command], None]] = [
    *(ctrl_c, ctrl_c_twice, sigterm_twice, closed_terminal),
    *(closed_pipe, ctrl_c_and_closed_pipe, end_of_its_work),
]


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oversold clone's-") as folder:
        yield fresh_copy(Path(folder).resolve())


@pytest.fixture(scope="module")
def held(checkout: Path) -> Iterator[Path]:
    """The checkout, with its servers kept running."""
    holder = subprocess.Popen(
        [sys.executable, "-uc", HOLDER],
        cwd=checkout,
        env=fresh_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    yield checkout
    holder.communicate(timeout=30)
    assert_nothing_is_left(checkout)


def users(root: Path) -> list[dict[str, Any]]:
    return list(json.loads((root / "var" / "users.json").read_text())["users"])


def children(root: Path) -> list[int]:
    """The pids of what the newest user has started."""
    return [child["pid"] for child in users(root)[-1]["children"]]


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("ends", ENDINGS, ids=lambda ending: ending.__name__)
def test_a_command_leaves_no_process_and_is_forgotten(
    held: Path, ends: Callable[[Command], None]
) -> None:
    command = Command(held)
    command.read_until("ready")
    started = children(held)
    assert len(started) == 3, "two nodes and a Valkey"
    ends(command)
    assert [pid for pid in started if runs(pid)] == []
    assert len(users(held)) == 1, "the holder"


def test_an_ignored_sigint_ends_it_too(held: Path) -> None:
    """A shell's `&` has SIGINT ignored: then nobody could end it by Ctrl-C or kill -INT."""
    command = Command(held, ignoring=signal.SIGINT)
    command.read_until("ready")
    ctrl_c(command)


def test_nohup_is_respected(held: Path) -> None:
    command = Command(held, ignoring=signal.SIGHUP)
    command.read_until("ready")
    command.send(signal.SIGHUP)
    command.print_something()
    command.read_until("something")
    ctrl_c(command)


@pytest.mark.parametrize("is_stopping", [False, True])
def test_what_a_killed_command_left_is_ended_by_the_next_one(held: Path, is_stopping: bool) -> None:
    """Forgotten before they have ended, nobody would ever end them."""
    killed = Command(held, stop_timeout=60)
    killed.read_until("ready")
    left = children(held)[1:]  # the nodes
    if is_stopping:
        killed.send(signal.SIGINT)
        killed.read_until("stopping: node A, node B")
    killed.send(signal.SIGKILL)
    killed.end()
    assert all(runs(pid) for pid in left)

    following = Command(held)
    following.read_until("ready")
    assert [pid for pid in left if runs(pid)] == []
    ctrl_c(following)


def test_a_stack_stops_although_nobody_can_be_told() -> None:
    def progress(step: str) -> None:
        raise SystemExit(1)  # rich's answer to a closed pipe

    with tempfile.TemporaryFile() as log:
        stack = Stack(nodes=1, workers=1, threads=1, log=log, progress=progress)
        node = Node("A", environment=dict(os.environ), log=log)
        pid = node._server.start([sys.executable, "-c", "import time; time.sleep(600)"])
        stack.nodes.append(node)
        stack.stop()
    assert not runs(pid)


@pytest.fixture
def fill_the_disk(checkout: Path) -> Iterator[Callable[[], None]]:
    """Nothing can be written to the registry any more, once it is called."""
    full = checkout / "var" / "users.partial"

    def fill() -> None:
        full.parent.mkdir(exist_ok=True)
        full.symlink_to("/dev/full")

    yield fill
    full.unlink(missing_ok=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_disk_that_is_full_at_the_start_is_named_and_nothing_stays(
    checkout: Path, fill_the_disk: Callable[[], None]
) -> None:
    before = users(checkout) if (checkout / "var" / "users.json").exists() else []
    fill_the_disk()
    demo = start(checkout, "-m", "loadtest")
    printed, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "no space is left" in printed
    assert "Traceback" not in printed
    if not before:
        assert_nothing_is_left(checkout)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_with_a_disk_that_became_full_everything_ends_and_the_next_command_works(
    held: Path, fill_the_disk: Callable[[], None]
) -> None:
    command = Command(held)
    command.read_until("ready")
    started = children(held)
    fill_the_disk()
    command.send(signal.SIGINT)
    assert command.end() == 130
    assert "no space is left" in command.printed
    assert [pid for pid in started if runs(pid)] == []
    assert len(users(held)) == 2, "it is still registered"

    (held / "var" / "users.partial").unlink()
    following = Command(held)
    following.read_until("ready")
    ctrl_c(following)
    eventually(lambda: len(users(held)) == 1, what="both are forgotten")
