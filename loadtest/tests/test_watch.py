"""Work that needs servers is abandoned when a server ends, or when a disk is full.

The second argument of run_while_servers_live() is a function. It returns a message about a server
that has ended, or "" while all servers run.
"""

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

#: The message about a server that has ended.
END_MESSAGE = "node A ended; see the log"


@pytest.fixture
def end_of_test() -> Iterator[threading.Event]:
    """Yield an event for which the work may wait. It is set only after the test."""
    event = threading.Event()
    yield event
    event.set()


def test_result_of_the_work_is_returned() -> None:
    """The work returns 5 while all servers run."""
    assert run_while_servers_live(lambda: 5, lambda: "") == 5


@pytest.mark.parametrize("error", [TimeoutError("slow"), StackError("no log")])
def test_error_of_the_work_is_raised(error: Exception) -> None:
    """The work raises an error while all servers run."""

    def fail() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        run_while_servers_live(fail, lambda: "")


def test_waiting_work_is_abandoned_when_a_server_ends(end_of_test: threading.Event) -> None:
    """A server ends while work() waits for an event, which is set only after the test."""
    has_begun = threading.Event()

    def work() -> None:
        has_begun.set()
        end_of_test.wait()

    with pytest.raises(StackError, match=END_MESSAGE):
        run_while_servers_live(work, lambda: END_MESSAGE if has_begun.is_set() else "")


def test_error_is_explained_by_a_server_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work fails because a server has ended, and the end of the server is noticed later.

    Then StackError is raised. It has the message about the server, and its cause is the error of
    the work.
    """
    # No regular check of the servers comes before the error of the work.
    monkeypatch.setattr(watch, "POLL_INTERVAL_SECONDS", 60.0)
    # The first two checks after the error find that all servers run.
    messages = iter(["", "", END_MESSAGE, END_MESSAGE])

    def fail() -> None:
        raise ConnectionResetError("reset by peer")

    with pytest.raises(StackError, match=END_MESSAGE) as failure:
        run_while_servers_live(fail, lambda: next(messages))
    assert isinstance(failure.value.__cause__, ConnectionResetError)


@pytest.mark.parametrize("full_folder", ["var", "records"])
def test_work_ends_when_the_disk_is_full(
    full_folder: str, end_of_test: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk is full: that of the servers' files (var/), or that of the nodes' records.

    Servers on a full disk may run and never answer, so the work must not wait for them.
    """
    with tempfile.TemporaryFile() as log:
        stack = Stack(node_count=0, workers=1, threads=1, log=log)
        folder = {"var": VAR, "records": stack.records.parent}[full_folder]

        def advise_on_disk(checked_folder: Path) -> str:
            """Replace advise_on_disk(): report that only the disk of `folder` is full."""
            return "no space is left" if checked_folder == folder else ""

        monkeypatch.setattr(stack_module, "advise_on_disk", advise_on_disk)
        with pytest.raises(StackError, match="no space is left"):
            stack.run_while_alive(end_of_test.wait)
        stack.stop()
