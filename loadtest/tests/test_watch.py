"""Work that waits for a server ends when that server does, or when the disk is full."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.stack import stack as stack_module
from loadtest.stack import watch
from loadtest.stack.node import StackError
from loadtest.stack.stack import Stack
from loadtest.stack.watch import run_while_servers_live
from servers.embedded import VAR

DEAD = "node A ended; see the log"


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Return an event that is set only at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def test_work_returns_and_raises_as_it_does_alone() -> None:
    assert run_while_servers_live(lambda: 5, lambda: "") == 5
    for error in (TimeoutError("slow"), StackError("no log")):

        def fail(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error), match=str(error)):
            run_while_servers_live(fail, lambda: "")


def test_waiting_work_ends_when_a_server_ends(never: threading.Event) -> None:
    waits = threading.Event()

    def work() -> None:
        waits.set()
        never.wait()

    with pytest.raises(StackError, match=DEAD):
        run_while_servers_live(work, lambda: DEAD if waits.is_set() else "")


def test_error_is_explained_by_a_server_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error may come a moment before the server is known to have ended."""
    monkeypatch.setattr(watch, "INTERVAL_SECONDS", 60.0)
    looks = iter(["", "", DEAD, DEAD])

    def fail() -> None:
        raise ConnectionResetError("reset by peer")

    with pytest.raises(StackError, match=DEAD) as raised:
        run_while_servers_live(fail, lambda: next(looks))
    assert isinstance(raised.value.__cause__, ConnectionResetError)


@pytest.mark.parametrize("full_folder", ["var", "records"])
def test_work_ends_when_the_disk_is_full(
    full_folder: str, never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All servers still run. They may not answer any more, and say why only in their logs."""
    with tempfile.TemporaryFile() as log:
        stack = Stack(count=0, workers=1, threads=1, log=log)
        folder = {"var": VAR, "records": stack.records.parent}[full_folder]

        def full_disk_message(asked_folder: Path) -> str:
            return "no space is left" if asked_folder == folder else ""

        monkeypatch.setattr(stack_module, "full_disk_message", full_disk_message)
        with pytest.raises(StackError, match="no space is left"):
            stack.run_while_alive(never.wait)
        stack.stop()
