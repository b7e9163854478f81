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
from loadtest.tests.ending_command import ENDINGS, HOLDER, Command, ctrl_c
from servers.tests.proxied import eventually


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


def test_a_stack_stops_although_its_output_is_closed() -> None:
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
