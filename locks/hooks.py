"""Calls on_lost, in threads of its own. Loaded by the first lock that has one."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .support import lazily

logger = logging.getLogger(__name__)


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
