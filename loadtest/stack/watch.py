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
POLL_INTERVAL_SECONDS = 0.2
#: How long to wait, after `work` has failed, for the end of a server, which may be the cause.
SERVER_END_WAIT_SECONDS = 1.0


class WatchedServer(Protocol):
    """A server that may end by itself."""

    def why_ended(self) -> str:
        """Return how the server ended by itself; empty while it runs or after stop()."""


def run_while_servers_live(work: Callable[[], T], why_ended: Callable[[], str]) -> T:
    """Call `work` and return its result, but raise StackError as soon as a server ends.

    `work` runs in a thread. If a server ends, this function does not wait for the thread, because
    a request to that server may take a minute to fail.

    An exception that `work` raises while all servers run is raised here.

    work       makes the requests that need the servers; it must not start a process
    why_ended  returns a message on a server that has ended by itself, empty while all run
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
    names_server = isinstance(error, EmbeddedError)  # this error already says which server ended
    # The end of a server may have caused any other error, but is noticed only a moment later.
    if error is not None and not names_server and wait_for(why_ended, SERVER_END_WAIT_SECONDS):
        raise StackError(why_ended()) from error
    return outcome.result()
