"""`rush`: makes n calls at once, each in its own thread and on its own database connection."""

import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connections

from .awaitables import refuse_awaitables

#: Message of the ValueError about a coroutine function.
ASYNC_CALL_MESSAGE = (
    "the call is a coroutine function, which rush would not await: pass "
    "`lambda: asyncio.run(buy())`, or asgiref's async_to_sync(buy)"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a rush.

    Attributes:
        returned: The return values of the calls that returned.
        raised: The exceptions of the calls that raised.
        spread: Seconds between the first start and the last one.
    """

    returned: list[Any]
    raised: list[BaseException]
    spread: float


def rush(call: Callable[..., Any], n: int = 20, *, timeout: float = 30.0) -> Outcome:
    """Release n threads at once, each of which makes the call, and wait for all of them.

    The exceptions of the calls, including those of `pytest.fail`, are not raised but collected in
    `Outcome.raised`.

    Args:
        call: Called without arguments, or with the number of the thread (0 to n - 1) if it takes a
            parameter.
        n: The number of threads. Each may open its own connection to the database.
        timeout: Seconds within which all calls must have ended.

    Returns:
        The return values, the exceptions and the spread of the starts.

    Raises:
        AssertionError: A call did not start, or did not end, within `timeout` seconds.
        ValueError: n is less than 1; the call is a coroutine function or returns an awaitable; or
            Python cannot determine the parameters of the call.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    if inspect.iscoroutinefunction(call):
        raise ValueError(ASYNC_CALL_MESSAGE)
    takes_number = bool(inspect.signature(call).parameters)
    barrier = threading.Barrier(n)
    returned: list[Any] = []
    raised: list[BaseException] = []
    start_times: list[float] = []

    def run(number: int) -> None:
        try:
            barrier.wait(timeout)
            start_times.append(time.monotonic())
            returned.append(call(number) if takes_number else call())
        except BaseException as error:  # includes those of pytest.fail and sys.exit
            raised.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(n)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    running_count = sum(thread.is_alive() for thread in threads)
    if running_count:
        raise AssertionError(f"{running_count} of {n} calls have not ended within {timeout:g} s")
    # A call is not made if barrier.wait() times out in its thread.
    unstarted_count = n - len(start_times)
    if unstarted_count:
        problem = f"{unstarted_count} of {n} calls have not started within {timeout:g} s"
        raise AssertionError(problem)
    refuse_awaitables(returned, ASYNC_CALL_MESSAGE)
    return Outcome(returned, raised, max(start_times) - min(start_times))
