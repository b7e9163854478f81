"""However a command ends, its processes end, or stay registered until the next command ends them.

The commands here are real (`python -m loadtest`, its stack, its embedded servers), but for the
nodes: these ignore SIGTERM, so that stopping takes its time.
"""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtest.tests.checkout import assert_nothing_is_left, start
from loadtest.tests.ending_command import ENDINGS, HOLDER, Command, ctrl_c
from servers.tests.polling import eventually


@pytest.fixture(scope="module")
def held(clone: Path) -> Iterator[Path]:
    """The clone, with its servers kept running."""
    holder = start(clone, "-uc", HOLDER, stdin=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    yield clone
    holder.communicate(timeout=30)
    assert_nothing_is_left(clone)


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
    """With SIGINT ignored, as a shell's `&` does: otherwise nobody could end it by Ctrl-C."""
    command = Command(held, ignoring=signal.SIGINT)
    command.read_until("ready")
    started = children(held)
    assert len(started) == 3, "two nodes and a Valkey"
    ends(command)
    assert [pid for pid in started if runs(pid)] == []
    assert len(users(held)) == 1, "the holder"


def test_nohup_is_respected(held: Path) -> None:
    command = Command(held, ignoring=signal.SIGHUP)
    command.read_until("ready")
    command.send(signal.SIGHUP)
    command.print_something()
    command.read_until("something")
    ctrl_c(command)


def test_what_a_command_killed_while_it_stops_left_is_ended_by_the_next_one(held: Path) -> None:
    """Forgotten before they have ended, nobody would ever end them."""
    killed = Command(held, stop_timeout=60)
    killed.read_until("ready")
    left = children(held)[1:]  # the nodes
    killed.send(signal.SIGINT)
    killed.read_until("stopping: node A, node B")
    killed.send(signal.SIGKILL)
    killed.end()
    assert all(runs(pid) for pid in left)

    following = Command(held)
    following.read_until("ready")
    assert [pid for pid in left if runs(pid)] == []
    ctrl_c(following)


@pytest.fixture
def fill_the_disk(clone: Path) -> Iterator[Callable[[], None]]:
    """Nothing can be written to the registry any more, once it is called."""
    full = clone / "var" / "users.partial"

    def fill() -> None:
        full.parent.mkdir(exist_ok=True)
        full.symlink_to("/dev/full")

    yield fill
    full.unlink(missing_ok=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_disk_that_is_full_at_the_start_is_named_and_nothing_stays(
    clone: Path, fill_the_disk: Callable[[], None]
) -> None:
    before = users(clone) if (clone / "var" / "users.json").exists() else []
    fill_the_disk()
    demo = start(clone, "-m", "loadtest")
    printed, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "no space is left" in printed
    assert "Traceback" not in printed
    if not before:
        assert_nothing_is_left(clone)


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
