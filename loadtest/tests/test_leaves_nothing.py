"""When a command ends in any way, its processes end too, or the next command ends them.

The commands are like `python -m loadtest`, with a real stack and real embedded servers. Only the
nodes are replaced, by processes that ignore SIGTERM. So it takes some time to stop them.
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

#: A command like `demo`, with two nodes that ignore SIGTERM. It prints "ready", and then prints
#: each line of its input. It ends when its input ends. Its argument is the number of seconds after
#: which it kills a process that ignores SIGTERM.
COMMAND_PROGRAM = """
import sys
from loadtest.commands import main as program
from loadtest.stack import stack
from servers import process

process.STOP_TIMEOUT_SECONDS = stack.STOP_TIMEOUT_SECONDS = float(sys.argv[1])
STUBBORN = (
    "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
    "print('up', os.getpid(), flush=True); time.sleep(600)"
)

class StubbornNode(stack.ShopNode):
    def make_command(self):  # with ROOT, so that assert_nothing_is_left() finds the process
        return [sys.executable, "-uc", STUBBORN, str(stack.ROOT)]

    def wait_until_ready(self, shop):
        line = f"up {self.server.process.pid}"  # all nodes have one log
        self.server.wait_until(lambda: line in self.server.tail(), timeout=20)

stack.ShopNode = StubbornNode
stack.Stack._prepare_database = lambda self: "postgresql://unused"

def run(console):
    from loadtest.commands.output import Progress
    with (
        open(stack.ROOT / "run.log", "wb") as log,
        Progress(console) as progress,
        stack.Stack(node_count=2, workers=1, threads=1, log=log, progress=progress) as running,
    ):
        console.print("ready")
        for line in sys.stdin:
            console.print(line)
    return 0

program.COMMANDS["demo"] = lambda console, **options: run(console)
sys.exit(program.main(["demo"]))
"""


#: A program that uses the servers until its input ends. While it runs, no command has to start
#: them.
SERVERS_USER_PROGRAM = (
    "import sys; from servers import embedded; embedded.attach(); print('up'); sys.stdin.read()"
)


class Command:
    """A running command like `demo`, in a copy of the project. Its nodes ignore SIGTERM.

    ignored_signal  a signal that is ignored when the command starts, as under nohup
    stop_timeout    seconds until the command kills a process that ignores SIGTERM
    printed         the output that was read
    """

    def __init__(
        self,
        root: Path,
        *,
        ignored_signal: signal.Signals | None = None,
        stop_timeout: float = 0.5,
    ) -> None:
        def set_signal_handlers() -> None:
            # If the tests were started with nohup, the command would ignore SIGHUP, too.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            if ignored_signal is not None:
                signal.signal(ignored_signal, signal.SIG_IGN)

        arguments = ("-uc", COMMAND_PROGRAM, str(stop_timeout))
        self.process = start_python(
            root, *arguments, stdin=subprocess.PIPE, preexec_fn=set_signal_handlers
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin = self.process.stdin
        self.stdout = self.process.stdout
        self.send_signal = self.process.send_signal
        self.printed = ""

    def read_until(self, text: str) -> None:
        """Read the output until a line contains this text."""
        for line in self.stdout:
            self.printed += line
            if text in line:
                return
        raise AssertionError(f"the command ended without {text!r} in its output: {self.printed}")

    def make_it_print(self) -> None:
        """Send the command the line "something", which it then prints."""
        self.stdin.write("something\n")
        self.stdin.flush()

    def wait_for_end(self) -> int:
        """Read the output to its end, wait for the command, and return its exit code."""
        if not self.stdout.closed:
            self.printed += self.stdout.read()
            self.stdout.close()
        exit_code = self.process.wait(30)
        self.stdin.close()
        return exit_code

    def kill(self) -> None:
        """Kill the command unless it has ended, and close its pipes."""
        self.process.kill()
        self.process.wait()
        self.stdout.close()
        self.stdin.close()


# The following functions end a command, and check its exit code and its last output.


def press_ctrl_c(command: Command) -> None:
    """Interrupt the command. It must print what it stops, and exit with code 130."""
    command.send_signal(signal.SIGINT)
    assert command.wait_for_end() == 130
    assert "stopping: node A, node B, at most" in command.printed
    assert command.printed.endswith("stopped; everything that was started is stopped too\n")


def send_sigterm_twice(command: Command) -> None:
    """Send SIGTERM, and send it again while the command stops its nodes."""
    command.send_signal(signal.SIGTERM)
    command.read_until("stopping: node A, node B")
    command.send_signal(signal.SIGTERM)
    assert command.wait_for_end() == 128 + signal.SIGTERM
    assert command.printed.count("stopping: node ") >= 2, "each signal should be reported"


def close_terminal(command: Command) -> None:
    """Close the output and send SIGHUP, as happens when a terminal window is closed."""
    command.stdout.close()
    command.send_signal(signal.SIGHUP)
    assert command.wait_for_end() == 128 + signal.SIGHUP


def close_pipe(command: Command) -> None:
    """Make the command print to a pipe that is closed, as after `| head -1`."""
    command.stdout.close()
    command.make_it_print()
    assert command.wait_for_end() == 1


@pytest.fixture(scope="module")
def clone_with_servers(clone: Path) -> Iterator[Path]:
    """Yield a copy of the project, whose servers are kept running by another process."""
    servers_user = start_python(clone, "-uc", SERVERS_USER_PROGRAM, stdin=subprocess.PIPE)
    assert servers_user.stdout is not None
    assert servers_user.stdout.readline() == "up\n"
    yield clone
    servers_user.communicate(timeout=30)
    assert_nothing_is_left(clone)


@pytest.fixture
def start_command(clone_with_servers: Path) -> Iterator[Callable[..., Command]]:
    """Yield a function that starts a command and waits until it is ready.

    The commands that still run at the end of the test are killed.
    """
    with ExitStack() as cleanup:

        def start_and_wait(**options: Any) -> Command:
            command = Command(clone_with_servers, **options)
            cleanup.callback(command.kill)
            command.read_until("ready")
            return command

        yield start_and_wait


def read_server_users(root: Path) -> list[dict[str, Any]]:
    """Return the entries of users.json, one for each process that uses the servers.

    The list `children` of an entry has the processes that this process started.
    """
    return list(json.loads((root / "var" / "users.json").read_text())["users"])


def read_children(root: Path) -> list[dict[str, Any]]:
    """Return the processes that the newest command registered in users.json has started."""
    return list(read_server_users(root)[-1]["children"])


@pytest.mark.parametrize(
    "end_command", [press_ctrl_c, send_sigterm_twice, close_terminal, close_pipe]
)
def test_command_leaves_no_process_and_no_registration(
    clone_with_servers: Path,
    start_command: Callable[..., Command],
    end_command: Callable[[Command], None],
) -> None:
    """After the command has ended, its nodes and its Valkey have ended, and it is not registered.

    The command handles SIGINT, although it starts with SIGINT ignored. A shell starts a command
    that is followed by `&` in this way.
    """
    command = start_command(ignored_signal=signal.SIGINT)
    children = read_children(clone_with_servers)
    assert len(children) == 3, "the command should start two nodes and a Valkey"
    end_command(command)
    assert not any(map(is_alive, children))
    assert len(read_server_users(clone_with_servers)) == 1, (
        "only the fixture's process uses the servers"
    )


def test_command_under_nohup_ignores_sighup(start_command: Callable[..., Command]) -> None:
    """A command that starts with SIGHUP ignored, as under nohup, still runs after a SIGHUP."""
    command = start_command(ignored_signal=signal.SIGHUP)
    command.send_signal(signal.SIGHUP)
    command.make_it_print()
    command.read_until("something")
    press_ctrl_c(command)


def test_next_command_cleans_up_after_a_killed_one(
    clone_with_servers: Path, start_command: Callable[..., Command]
) -> None:
    """The command is killed while it stops its nodes. They ignore SIGTERM, so they still run.

    The nodes must still be registered, because the next command ends all registered processes.
    """
    killed_command = start_command(stop_timeout=60)
    _valkey, *nodes = read_children(clone_with_servers)
    killed_command.send_signal(signal.SIGINT)
    killed_command.read_until("stopping: node A, node B")
    killed_command.send_signal(signal.SIGKILL)
    killed_command.wait_for_end()
    assert all(map(is_alive, nodes))

    next_command = start_command()
    assert not any(map(is_alive, nodes))
    press_ctrl_c(next_command)


@pytest.fixture
def fill_disk(clone: Path) -> Iterator[Callable[[], None]]:
    """Yield a function that makes every write of the registry fail, as on a full disk.

    The registry is the file users.json, a list of the running commands and their processes. A new
    version of it is written to the file users.partial, which is then renamed.
    """
    new_registry = clone / "var" / "users.partial"

    def fill() -> None:
        new_registry.parent.mkdir(exist_ok=True)
        new_registry.symlink_to("/dev/full")

    yield fill
    new_registry.unlink(missing_ok=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk_at_the_start_is_reported_and_leaves_nothing(
    clone: Path, fill_disk: Callable[[], None]
) -> None:
    """The command cannot register itself in users.json, and so must not start any process."""
    has_users = (clone / "var" / "users.json").exists() and bool(read_server_users(clone))
    fill_disk()
    demo = start_python(clone, "-m", "loadtest")
    output = read_until_end(demo)
    assert demo.returncode == 2
    assert "no space is left" in output
    assert "Traceback" not in output
    if not has_users:  # a process that uses the servers keeps them running
        assert_nothing_is_left(clone)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_processes_end_although_the_disk_is_full(
    clone_with_servers: Path, start_command: Callable[..., Command], fill_disk: Callable[[], None]
) -> None:
    """The disk becomes full while the command runs.

    The command ends its processes, but cannot remove itself from the registry, users.json. The next
    command removes it when there is space again.
    """
    command = start_command()
    children = read_children(clone_with_servers)
    fill_disk()
    command.send_signal(signal.SIGINT)
    assert command.wait_for_end() == 130
    assert "no space is left" in command.printed
    assert not any(map(is_alive, children))
    assert len(read_server_users(clone_with_servers)) == 2, "the fixture's process and the command"

    (clone_with_servers / "var" / "users.partial").unlink()
    next_command = start_command()
    press_ctrl_c(next_command)
    eventually(
        lambda: len(read_server_users(clone_with_servers)) == 1,
        what="only the fixture's process uses the servers",
    )
