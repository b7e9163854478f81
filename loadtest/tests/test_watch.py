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

END_MESSAGE = "node A ended; see the log"


@pytest.fixture
def end_of_test() -> Iterator[threading.Event]:
    """Yield an event for which the test's work may wait, and set it when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_result_of_the_work_is_returned() -> None:
    assert run_while_servers_live(lambda: 5, lambda: "") == 5


@pytest.mark.parametrize("error", [TimeoutError("slow"), StackError("no log")])
def test_error_of_the_work_is_raised(error: Exception) -> None:
    """The work fails while all servers are running, which the empty text says."""

    def fail() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        run_while_servers_live(fail, lambda: "")


def test_waiting_work_is_abandoned_when_a_server_ends(end_of_test: threading.Event) -> None:
    """The second argument returns why a server has ended, or "" while all are running."""
    has_begun = threading.Event()

    def work() -> None:
        has_begun.set()
        end_of_test.wait()

    with pytest.raises(StackError, match=END_MESSAGE):
        run_while_servers_live(work, lambda: END_MESSAGE if has_begun.is_set() else "")


def test_error_is_explained_by_a_server_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work fails a moment before it is known that a server has ended.

    The error names the server, and has the work's own error as its cause.
    """
    monkeypatch.setattr(watch, "POLL_INTERVAL_SECONDS", 60.0)  # no check before the error
    messages = iter(["", "", END_MESSAGE, END_MESSAGE])  # "": no server has ended yet

    def fail() -> None:
        raise ConnectionResetError("reset by peer")

    with pytest.raises(StackError, match=END_MESSAGE) as failure:
        run_while_servers_live(fail, lambda: next(messages))
    assert isinstance(failure.value.__cause__, ConnectionResetError)


@pytest.mark.parametrize("full_folder", ["var", "records"])
def test_work_ends_when_the_disk_is_full(
    full_folder: str, end_of_test: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of var/, with the servers' files, is full, or that of the nodes' records.

    Servers on a full disk may run without answering, so the work must not wait for them.
    """
    with tempfile.TemporaryFile() as log:
        stack = Stack(node_count=0, workers=1, threads=1, log=log)
        folder = {"var": VAR, "records": stack.records.parent}[full_folder]

        def advise_on_disk(asked_folder: Path) -> str:
            return "no space is left" if asked_folder == folder else ""

        monkeypatch.setattr(stack_module, "advise_on_disk", advise_on_disk)
        with pytest.raises(StackError, match="no space is left"):
            stack.run_while_alive(end_of_test.wait)
        stack.stop()
