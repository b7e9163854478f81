"""A real command in a checkout, and the ways in which it ends."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from loadtest.tests.checkout import start

#: Prints each line of its input, until that ends.
COMMAND = """
import sys
from pathlib import Path
from loadtest.commands import main as program, rushes
from loadtest.stack import database, stack
from servers import process

process.STOP_TIMEOUT = stack.STOP_TIMEOUT = float(sys.argv[1])
STUBBORN = (
    "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
    "print('up', os.getpid(), flush=True); time.sleep(600)"
)

class StubbornNode(stack.Node):
    def command(self):
        return [sys.executable, "-uc", STUBBORN, str(stack.ROOT)]

    def wait_until_ready(self, shop):
        up = f"up {self.process.pid}"  # all nodes have one log
        self._server.wait_until(lambda: up in self._server.tail(), timeout=20)

stack.Node = StubbornNode
database.create = lambda progress, log: "postgresql://nobody-asks"

def run(console):
    from loadtest.commands.output import Progress
    with (
        open(stack.ROOT / "run.log", "wb") as log,
        Progress(console) as progress,
        stack.Stack(nodes=2, workers=1, threads=1, log=log, progress=progress) as running,
    ):
        console.print("ready")
        for line in sys.stdin:
            console.print(line)
    return 0

rushes.demo = run
sys.exit(program.main(["demo"]))
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
        self.process = start(
            root,
            *("-uc", COMMAND, str(stop_timeout)),
            stdin=subprocess.PIPE,
            preexec_fn=lambda: as_a_terminal_starts_it(ignoring),
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


def as_a_terminal_starts_it(ignoring: signal.Signals | None) -> None:
    """Nothing is ignored but this, also where nohup started the tests."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if ignoring is not None:
        signal.signal(ignoring, signal.SIG_IGN)


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
    command.stop_reading()
    command.send(signal.SIGHUP)
    assert command.end() == 128 + signal.SIGHUP


def closed_pipe(command: Command) -> None:
    command.stop_reading()
    command.print_something()
    assert command.end() == 1


def end_of_its_work(command: Command) -> None:
    assert command.process.stdin is not None
    command.process.stdin.close()
    assert command.end() == 0


ENDINGS: list[Callable[[Command], None]] = [
    *(ctrl_c, sigterm_twice, closed_terminal, closed_pipe, end_of_its_work),
]
