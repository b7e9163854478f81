"""However a command ends, its processes end, or the next command ends them.

The commands are real (`python -m loadtest`, its stack, its embedded servers), except for the nodes,
which ignore SIGTERM, so that stopping them takes some time.
"""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadtest.tests.checkout import assert_nothing_is_left, read_until_end, start_python
from servers.registry import is_alive
from servers.tests.polling import eventually

#: Prints each line of its input, until that ends.
COMMAND = """
import sys
from pathlib import Path
from loadtest.commands import main as program
from loadtest.stack import stack
from servers import process

process.STOP_TIMEOUT_SECONDS = stack.STOP_TIMEOUT_SECONDS = float(sys.argv[1])
STUBBORN = (
    "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
    "print('up', os.getpid(), flush=True); time.sleep(600)"
)

class StubbornNode(stack.ShopNode):
    def command(self):
        return [sys.executable, "-uc", STUBBORN, str(stack.ROOT)]

    def wait_until_ready(self, shop):
        up = f"up {self.server.process.pid}"  # all nodes have one log
        self.server.wait_until(lambda: up in self.server.tail(), timeout=20)

stack.ShopNode = StubbornNode
stack.Stack._own_database = lambda self: "postgresql://nobody-asks"

def run(console):
    from loadtest.commands.output import Progress
    with (
        open(stack.ROOT / "run.log", "wb") as log,
        Progress(console) as progress,
        stack.Stack(count=2, workers=1, threads=1, log=log, progress=progress) as running,
    ):
        console.print("ready")
        for line in sys.stdin:
            console.print(line)
    return 0

program.COMMANDS["demo"] = lambda console, **options: run(console)
sys.exit(program.main(["demo"]))
"""


#: Uses the servers until its input ends, so that not every command has to start them.
HOLDER = (
    "import sys; from servers import embedded; embedded.attach(); print('up'); sys.stdin.read()"
)


class Command:
    """A command in a checkout, and its output.

    It ignores no signal except `ignoring`, even if the tests run under nohup.
    """

    def __init__(
        self, root: Path, *, ignoring: signal.Signals | None = None, stop_timeout: float = 0.5
    ) -> None:
        def as_a_terminal_starts_it() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            if ignoring is not None:
                signal.signal(ignoring, signal.SIG_IGN)

        words = ("-uc", COMMAND, str(stop_timeout))
        self.process = start_python(
            root, *words, stdin=subprocess.PIPE, preexec_fn=as_a_terminal_starts_it
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.send = self.process.send_signal
        self.printed = ""

    def read_until(self, text: str) -> None:
        for line in self.stdout:
            self.printed += line
            if text in line:
                return
        raise AssertionError(f"it never printed {text!r}: {self.printed}")

    def print_something(self) -> None:
        self.stdin.write("something\n")
        self.stdin.flush()

    def end(self) -> int:
        if not self.stdout.closed:
            self.printed += self.stdout.read()
            self.stdout.close()
        code = self.process.wait(30)
        self.stdin.close()
        return code

    def kill(self) -> None:
        """Kill the command unless it has ended, and close its pipes."""
        self.process.kill()
        self.process.wait()
        self.stdout.close()
        self.stdin.close()


def ctrl_c(command: Command) -> None:
    command.send(signal.SIGINT)
    assert command.end() == 130
    assert "stopping: node A, node B, at most" in command.printed
    assert command.printed.endswith("stopped; everything that was started is stopped too\n")


def sigterm_twice(command: Command) -> None:
    command.send(signal.SIGTERM)
    command.read_until("stopping: node A, node B")
    command.send(signal.SIGTERM)
    assert command.end() == 128 + signal.SIGTERM
    assert command.printed.count("stopping: node ") >= 2, "the second one was answered"


def closed_terminal(command: Command) -> None:
    command.stdout.close()
    command.send(signal.SIGHUP)
    assert command.end() == 128 + signal.SIGHUP


def closed_pipe(command: Command) -> None:
    """Close the reading end of the output, as `| head -1` does, and `| tee` after Ctrl-C."""
    command.stdout.close()
    command.print_something()
    assert command.end() == 1


@pytest.fixture(scope="module")
def held(clone: Path) -> Iterator[Path]:
    """Yield the clone while its servers are kept running."""
    holder = start_python(clone, "-uc", HOLDER, stdin=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    yield clone
    holder.communicate(timeout=30)
    assert_nothing_is_left(clone)


@pytest.fixture
def start_command(held: Path) -> Iterator[Callable[..., Command]]:
    """Start a command in the clone, wait until it is ready, and kill it if the test fails."""
    with ExitStack() as cleanup:

        def start_one(**options: Any) -> Command:
            command = Command(held, **options)
            cleanup.callback(command.kill)
            command.read_until("ready")
            return command

        yield start_one


def users(root: Path) -> list[dict[str, Any]]:
    return list(json.loads((root / "var" / "users.json").read_text())["users"])


def children(root: Path) -> list[dict[str, Any]]:
    """Return the processes that the newest user of the servers has started."""
    return list(users(root)[-1]["children"])


@pytest.mark.parametrize("ends", [ctrl_c, sigterm_twice, closed_terminal, closed_pipe])
def test_command_leaves_no_process_and_is_forgotten(
    held: Path, start_command: Callable[..., Command], ends: Callable[[Command], None]
) -> None:
    """The command starts with SIGINT ignored, as after a shell's `&`, and still handles it."""
    command = start_command(ignoring=signal.SIGINT)
    started = children(held)
    assert len(started) == 3, "two nodes and a Valkey"
    ends(command)
    assert not any(map(is_alive, started))
    assert len(users(held)) == 1, "the holder"


def test_nohup_is_respected(start_command: Callable[..., Command]) -> None:
    command = start_command(ignoring=signal.SIGHUP)
    command.send(signal.SIGHUP)
    command.print_something()
    command.read_until("something")
    ctrl_c(command)


def test_next_command_cleans_up_after_a_killed_one(
    held: Path, start_command: Callable[..., Command]
) -> None:
    """A process that is unregistered before it has ended could run forever."""
    killed = start_command(stop_timeout=60)
    left = children(held)[1:]  # the nodes
    killed.send(signal.SIGINT)
    killed.read_until("stopping: node A, node B")
    killed.send(signal.SIGKILL)
    killed.end()
    assert all(map(is_alive, left))

    following = start_command()
    assert not any(map(is_alive, left))
    ctrl_c(following)


@pytest.fixture
def fill_the_disk(clone: Path) -> Iterator[Callable[[], None]]:
    """Return a function after whose call nothing can be written to the registry."""
    full = clone / "var" / "users.partial"

    def fill() -> None:
        full.parent.mkdir(exist_ok=True)
        full.symlink_to("/dev/full")

    yield fill
    full.unlink(missing_ok=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk_at_the_start_is_reported_and_leaves_nothing(
    clone: Path, fill_the_disk: Callable[[], None]
) -> None:
    before = users(clone) if (clone / "var" / "users.json").exists() else []
    fill_the_disk()
    demo = start_python(clone, "-m", "loadtest")
    printed = read_until_end(demo)
    assert demo.returncode == 2
    assert "no space is left" in printed
    assert "Traceback" not in printed
    if not before:
        assert_nothing_is_left(clone)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_everything_ends_although_the_disk_became_full(
    held: Path, start_command: Callable[..., Command], fill_the_disk: Callable[[], None]
) -> None:
    """The command stays registered, and the next one works."""
    command = start_command()
    started = children(held)
    fill_the_disk()
    command.send(signal.SIGINT)
    assert command.end() == 130
    assert "no space is left" in command.printed
    assert not any(map(is_alive, started))
    assert len(users(held)) == 2, "it is still registered"

    (held / "var" / "users.partial").unlink()
    following = start_command()
    ctrl_c(following)
    eventually(lambda: len(users(held)) == 1, what="both are forgotten")
