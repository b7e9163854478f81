"""If a server dies, the command that uses it ends at once, with exit code 2.

The command prints which server has died, and the path of its log. The tests run the commands in a
clone of the project, and kill their servers.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from loadtest.tests.checkout import assert_nothing_is_left, start_python
from loadtest.tests.test_serve import read_until_ready
from servers.tests.polling import eventually

#: The command `demo`, with rushes under the strategy `redis` only.
DEMO = ("-m", "loadtest", "demo", "--lock", "redis")
#: A rush of half a minute: six buyers stay in the critical section one after another, 5 s each.
LONG_RUSH = ("--buyers", "6", "--stock", "6", "--hold-ms", "5000")
#: The longest time in which the command may end. Buyers give up after 60 s. So a command that ends
#: earlier ends because of the server, and not because of its buyers.
END_TIMEOUT_SECONDS = 20.0

#: A function that returns the processes to kill. Its arguments are the process of the command, and
#: the clone of the project in which the command runs.
FindProcesses = Callable[[psutil.Process, Path], list[psutil.Process]]


def find_nodes(command: psutil.Process) -> dict[str, psutil.Process]:
    """Return the gunicorn master process of each node of the command, by the name of the node."""
    nodes = {}
    for child in command.children():
        # A child process that was listed may have ended by now.
        with suppress(psutil.NoSuchProcess):
            if "gunicorn" in child.cmdline():
                nodes[child.environ()["SHOP_DEMO_NODE"]] = child
    return nodes


def find_node_a(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    return [find_nodes(command)["A"]]


def find_both_nodes(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    return list(find_nodes(command).values())


def find_valkey(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    """Return the process of the Valkey server that the nodes use. Others may run, too."""
    port = find_nodes(command)["A"].environ()["REDIS_URL"].rpartition(":")[2]
    servers = [child for child in command.children() if child.name() == "valkey-server"]
    return [server for server in servers if f":{port}" in " ".join(server.cmdline())]


def find_postgres(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    pid = (clone / "var" / "postgres" / "postmaster.pid").read_text().split()[0]
    return [psutil.Process(int(pid))]


def find_locust(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    """Return the process of Locust that runs the command's rushes."""
    locust_processes = []
    for child in command.children():
        with suppress(psutil.NoSuchProcess):  # raised if the child has ended by now
            if "loadtest.locust_child" in child.cmdline():
                locust_processes.append(child)
    return locust_processes


def wait_until_stock_is_read(command: psutil.Process) -> None:
    """Wait until a buyer has the lock and has read the stock.

    The nodes record the event `after_read` in files.
    """
    eventually(lambda: len(find_nodes(command)) == 2, what="two nodes", timeout=60)
    record_folder = Path(find_nodes(command)["A"].environ()["SHOP_DEMO_HISTORY"])

    def has_read() -> bool:
        for file in record_folder.glob("*.jsonl"):
            for line in file.read_text().splitlines():
                is_whole = line.endswith("}")  # otherwise a node is writing the line now
                if is_whole and json.loads(line)["f"] == "after_read":
                    return True
        return False

    eventually(has_read, what="a buyer who has read the stock", timeout=60)


def kill(processes: list[psutil.Process]) -> None:
    assert processes, "there is no process to kill"
    for process in processes:
        process.kill()


def assert_ends_with_an_error(command: subprocess.Popen[str]) -> str:
    """Assert that a command ends soon, with code 2 and without a traceback. Return its output.

    The caller has just killed a server of the command.
    """
    killed_at = time.monotonic()
    output = command.communicate(timeout=180)[0]
    assert time.monotonic() - killed_at < END_TIMEOUT_SECONDS, output
    assert command.returncode == 2, output
    assert "Traceback" not in output
    return output


@pytest.mark.parametrize(
    ("find_processes", "message"),  # the group in each message is the path of the log
    [
        (find_node_a, r"^node A ended \(SIGKILL.*\); see \S.*/(var/run-\d+\.log)$"),
        (find_both_nodes, r"^node [AB] ended \(SIGKILL.*\); see \S.*/(var/run-\d+\.log)$"),
        (find_valkey, r"^Valkey ended \(SIGKILL.*\); see \S.*/(var/run-\d+\.log)$"),
        (find_postgres, r"^PostgreSQL ended; see \S.*/(var/postgres/log)$"),
        (find_locust, r"^Locust ended \(SIGKILL.*\); see \S.*/(var/run-\d+\.log)$"),
    ],
)
def test_demo_prints_which_server_died(
    clone: Path, find_processes: FindProcesses, message: str
) -> None:
    """The server is killed during a rush of half a minute, while a buyer has the lock."""
    command = start_python(clone, *DEMO, *LONG_RUSH)
    wait_until_stock_is_read(psutil.Process(command.pid))
    kill(find_processes(psutil.Process(command.pid), clone))
    output = assert_ends_with_an_error(command)
    (log,) = re.findall(message, output, re.MULTILINE)
    assert (clone / log).is_file()
    assert_nothing_is_left(clone)


@pytest.mark.parametrize(
    ("find_processes", "name"),
    [(find_node_a, "node A"), (find_valkey, "Valkey"), (find_postgres, "PostgreSQL")],
)
def test_serve_prints_which_server_died(
    clone: Path, find_processes: FindProcesses, name: str
) -> None:
    """The server is killed after `serve` has printed that it is ready."""
    command = start_python(clone, "-m", "loadtest", "serve")
    read_until_ready(command)
    kill(find_processes(psutil.Process(command.pid), clone))
    output = assert_ends_with_an_error(command)
    assert re.search(rf"^{name} ended", output, re.MULTILINE)
    assert_nothing_is_left(clone)


def test_load_prints_which_node_died(clone: Path) -> None:
    """Node A is killed while Locust sends purchases."""
    command = start_python(clone, "-m", "loadtest", "load", "--lock", "redis", "--seconds", "60")
    process = psutil.Process(command.pid)
    eventually(lambda: len(find_nodes(process)) == 2, what="two nodes", timeout=60)
    eventually(
        lambda: any("--headless" in child.cmdline() for child in process.children()),
        what="Locust",
        timeout=60,
    )
    kill(find_node_a(process, clone))
    output = assert_ends_with_an_error(command)
    assert re.search(r"^node A ended \(SIGKILL", output, re.MULTILINE)
    assert_nothing_is_left(clone)
