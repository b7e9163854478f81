"""Small parts: the clock, attributes made late, threads for on_lost, steps and who does them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

logger = logging.getLogger(__name__)


if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds from an unknown moment on; the wall clock does not move it.

        It runs on while the machine is suspended, which time.monotonic() does not on Linux: a
        laptop that wakes up trusts no lease of the day before.
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic


S = TypeVar("S")
T = TypeVar("T")


def lazily(owner: object, name: str, make: Callable[[], T]) -> T:
    """owner's attribute `name`; the result of `make` the first time.

    For threading's primitives. Late, because gevent may patch threading after this package was
    imported and locks were made. By setdefault, because it is atomic: of two threads that come at
    once both get the same object.
    """
    attributes = vars(owner)
    found: T = attributes[name] if name in attributes else attributes.setdefault(name, make())
    return found


#: Threads that run at one time, however many leases are lost at once.
MOST = 8


class Callbacks:
    """A queue of calls, and threads that end when it is empty."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything: also what a forked child inherited."""
        vars(self).pop("_changing", None)
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._threads = 0

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call it soon, in another thread; in this one if none can be started."""
        with lazily(self, "_changing", threading.Lock):
            self._calls.append((function, args))
            if self._threads >= MOST:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._work, name="locks.on_lost", daemon=True).start()
        except RuntimeError:  # the interpreter is ending, or there are too many threads
            self._work()

    def _work(self) -> None:
        while True:
            with lazily(self, "_changing", threading.Lock):
                if not self._calls:
                    self._threads -= 1
                    return
                function, args = self._calls.popleft()
            try:
                function(*args)
            except BaseException:  # SystemExit ends no thread that others need
                logger.exception("on_lost failed")


#: The one of this process.
callbacks = Callbacks()
os.register_at_fork(after_in_child=callbacks.reset)


def run(steps: Generator[S, Any, T], do: Callable[[S], Any]) -> T:
    """Do each step by calling `do`. Returns the generator's result, and raises what it raises."""
    try:
        step = next(steps)
        while True:
            try:
                answer = do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()  # also when a signal handler raised between two steps
