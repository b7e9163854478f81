"""Work that is abandoned as soon as a server that it needs has ended."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Protocol, TypeVar

from loadtest.stack.node import StackError
from servers.server_errors import EmbeddedError
from servers.waiting import wait_for

T = TypeVar("T")
#: Time between two checks of the servers.
INTERVAL_SECONDS = 0.2
#: How long after a failed request to a server its end may be noticed.
NOTICE_SECONDS = 1.0


class Watched(Protocol):
    """A server that may end by itself."""

    def why_ended(self) -> str:
        """Return how it ended by itself; empty while it runs or once it is stopped."""


def unless_ended(work: Callable[[], T], why_ended: Callable[[], str]) -> T:
    """Call `work` in a thread and return what it returns, or raise what it raises.

    The thread is left to itself when a server ends: what it waits for may take a minute to fail.
    Stopping the other servers ends that wait.

    Args:
        work: Calls that need the servers. It must not start a process.
        why_ended: Returns a message on the first server that has ended, empty while all run.

    Raises:
        StackError: A server ended. The message is that of `why_ended`.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    while not wait([outcome], INTERVAL_SECONDS).done:
        if message := why_ended():
            raise StackError(message)
    error = outcome.exception()
    names_its_server = isinstance(error, EmbeddedError)
    if error is not None and not names_its_server and wait_for(why_ended, NOTICE_SECONDS):
        raise StackError(why_ended()) from error
    return outcome.result()
