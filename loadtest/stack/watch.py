"""Work in a thread, which is abandoned as soon as a server that it needs has ended."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Protocol, TypeVar

from loadtest.stack.node import StackError
from servers.server_errors import EmbeddedError
from servers.waiting import wait_for

T = TypeVar("T")
#: Time between two checks of the servers.
POLL_INTERVAL_SECONDS = 0.2
#: After `work` has failed, wait this long for a server to end: its end may be the cause, and is
#: noticed later than the failure.
SERVER_END_WAIT_SECONDS = 1.0


class WatchedServer(Protocol):
    """A server whose unexpected end can be noticed."""

    def why_ended(self) -> str:
        """Return how the server ended by itself; empty while it runs or after stop()."""


def run_while_servers_live(work: Callable[[], T], why_ended: Callable[[], str]) -> T:
    """Call `work` in a thread and return its result, but raise StackError if a server ends.

    If a server ends, this function does not wait for the thread, because a request to that server
    may take a minute to fail. If `work` raises an exception while all servers run, the exception is
    raised here.

    work       sends the requests that need the servers; it must not start a process
    why_ended  returns a message on a server that has ended by itself; empty while all servers run
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # the caller must receive SystemExit, too
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    while not wait([outcome], POLL_INTERVAL_SECONDS).done:
        if message := why_ended():
            raise StackError(message)
    error = outcome.exception()
    has_server_name = isinstance(error, EmbeddedError)  # its message has the name of the server
    # Any other error may be the consequence of a server's end, which is noticed a moment later.
    if error is not None and not has_server_name and wait_for(why_ended, SERVER_END_WAIT_SECONDS):
        raise StackError(why_ended()) from error
    return outcome.result()
