"""A server that dies ends the command at once.

The command names the server and its log, and exits with code 2. The commands are real. Each kill
comes while a buyer is in the critical section, where it stays for seconds.
"""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from loadtest.tests.checkout import assert_nothing_is_left, start_python
from servers.tests.polling import eventually

#: A rush of half a minute.
DEMO = ("-m", "loadtest", "demo", "--lock", "redis", "--buyers", "6", "--stock", "6")
HOLD = ("--hold-ms", "5000")
#: Buyers give up after 60 s: a message before that is not theirs.
LONGEST_SILENCE_SECONDS = 20.0

Victims = Callable[[psutil.Process, Path], list[psutil.Process]]


def nodes_of(command: psutil.Process) -> dict[str, psutil.Process]:
    """Return gunicorn's master process of each node, by the node's name."""
    nodes = {}
    for child in command.children():
        # A helper process of the command may end between the listing and the look at it.
        with suppress(psutil.NoSuchProcess):
            if "gunicorn" in child.cmdline():
                nodes[child.environ()["SHOP_DEMO_NODE"]] = child
    return nodes


def first_node(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    return [nodes_of(command)["A"]]


def both_nodes(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    return list(nodes_of(command).values())


def valkey(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    """Return the Valkey process of the nodes, not the one of the checkout."""
    port = nodes_of(command)["A"].environ()["REDIS_URL"].rpartition(":")[2]
    servers = [child for child in command.children() if child.name() == "valkey-server"]
    return [server for server in servers if f":{port}" in " ".join(server.cmdline())]


def postgres(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    pid = (clone / "var" / "postgres" / "postmaster.pid").read_text().split()[0]
    return [psutil.Process(int(pid))]


def locust(command: psutil.Process, clone: Path) -> list[psutil.Process]:
    masters = []
    for child in command.children():
        with suppress(psutil.NoSuchProcess):
            if "loadtest.locust_child" in child.cmdline():
                masters.append(child)
    return masters


def wait_for_purchase(command: psutil.Process) -> None:
    """Wait until a buyer has read the stock."""
    eventually(lambda: len(nodes_of(command)) == 2, what="two nodes", timeout=60)
    records = Path(nodes_of(command)["A"].environ()["SHOP_DEMO_HISTORY"])

    def has_read() -> bool:
        lines = [line for file in records.glob("*.jsonl") for line in file.read_text().splitlines()]
        return any(json.loads(line)["f"] == "after_read" for line in lines if line.endswith("}"))

    eventually(has_read, what="a buyer who has read the stock", timeout=60)


def kill(victims: list[psutil.Process]) -> None:
    assert victims
    for process in victims:
        process.kill()


def output_after_death(command: subprocess.Popen[str]) -> str:
    """Return the output, and assert that the command ends soon with code 2 and no traceback."""
    died_at = time.monotonic()
    printed = command.communicate(timeout=180)[0]
    assert time.monotonic() - died_at < LONGEST_SILENCE_SECONDS, printed
    assert command.returncode == 2, printed
    assert "Traceback" not in printed
    return printed


KINDS = pytest.mark.parametrize(
    ("victims", "message"),
    [
        (first_node, r"^node A ended \(SIGKILL.*\); see \S.*/(var/run-\d+\.log)$"),
        (both_nodes, r"^node [AB] ended \(SIGKILL.*\); see \S.*/(var/run-\d+\.log)$"),
        (valkey, r"^Valkey ended \(SIGKILL.*\); see \S.*/(var/run-\d+\.log)$"),
        (postgres, r"^PostgreSQL ended; see \S.*/(var/postgres/log)$"),
        (locust, r"^Locust ended \(SIGKILL.*\); see \S.*/(var/run-\d+\.log)$"),
    ],
)


@KINDS
def test_demo_names_the_server_that_died(clone: Path, victims: Victims, message: str) -> None:
    command = start_python(clone, *DEMO, *HOLD)
    wait_for_purchase(psutil.Process(command.pid))
    kill(victims(psutil.Process(command.pid), clone))
    printed = output_after_death(command)
    (log,) = re.findall(message, printed, re.MULTILINE)
    assert (clone / log).is_file()
    assert_nothing_is_left(clone)


@pytest.mark.parametrize("victims", [first_node, valkey, postgres])
def test_serve_names_the_server_that_died(clone: Path, victims: Victims) -> None:
    command = start_python(clone, "-m", "loadtest", "serve")
    assert command.stdout is not None
    while "Ctrl-C" not in command.stdout.readline():
        pass
    (victim,) = victims(psutil.Process(command.pid), clone)
    victim.send_signal(signal.SIGKILL)
    assert re.search(
        r"^(node A|Valkey|PostgreSQL) ended", output_after_death(command), re.MULTILINE
    )
    assert_nothing_is_left(clone)


def test_load_names_the_node_that_died(clone: Path) -> None:
    command = start_python(clone, "-m", "loadtest", "load", "--lock", "redis", "--seconds", "60")
    process = psutil.Process(command.pid)
    eventually(lambda: len(nodes_of(process)) == 2, what="two nodes", timeout=60)
    eventually(
        lambda: any("--headless" in child.cmdline() for child in process.children()),
        what="Locust",
        timeout=60,
    )
    kill(first_node(process, clone))
    assert re.search(r"^node A ended \(SIGKILL", output_after_death(command), re.MULTILINE)
    assert_nothing_is_left(clone)
