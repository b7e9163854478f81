"""n calls at once, each in a thread and on a connection of its own."""

import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connections


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the calls ended."""

    returned: list[Any]  # what was returned, of the calls that returned
    raised: list[Exception]  # what was raised, of those that raised
    spread: float  # seconds between the first start and the last one


def rush(call: Callable[..., Any], n: int = 20, *, timeout: float = 30.0) -> Outcome:
    """Release n threads at once, each of which calls `call`, and wait for all.

    call     called without arguments, or with the thread's number (0 to n - 1) if it takes one
    n        threads; each may open a connection of its own to the database
    timeout  seconds for all; AssertionError if a call has not ended by then

    An Exception of a call is part of the outcome: look at `raised`.
    """
    if n < 1:
        raise ValueError(f"n is {n}: a rush needs at least one call")
    takes_number = bool(inspect.signature(call).parameters)
    barrier = threading.Barrier(n)
    returned: list[Any] = []
    raised: list[Exception] = []
    started: list[float] = []

    def run(number: int) -> None:
        try:
            barrier.wait(timeout)
            started.append(time.monotonic())
            returned.append(call(number) if takes_number else call())
        except Exception as error:
            raised.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(n)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    hang = sum(thread.is_alive() for thread in threads)
    if hang:
        raise AssertionError(f"{hang} of {n} calls have not ended within {timeout:g} s")
    return Outcome(returned, raised, max(started) - min(started))
