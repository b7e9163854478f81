"""The threads that call on_lost and Metrics.lost.

This module is imported only if a lock has an on_lost or metrics.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .lazy import get_or_create

logger = logging.getLogger(__name__)


#: Maximum number of threads that call on_lost at the same time. There are several, so that a slow
#: on_lost does not delay the next calls.
MAX_CALLBACK_THREADS = 8


class Callbacks:
    """A queue of calls and the threads that run them. A thread ends when the queue is empty."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all calls and threads. Also used in a forked child, which has no such threads."""
        vars(self).pop("_mutex", None)  # get_or_create() makes a new one
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._thread_count = 0

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function soon in another thread, or now in this thread if no other can start.

        Args:
            function: The function.
            *args: Its arguments.
        """
        # An RLock, because a signal handler of this thread may notice another loss meanwhile.
        with get_or_create(self, "_mutex", threading.RLock):
            self._calls.append((function, args))
            if self._thread_count >= MAX_CALLBACK_THREADS:
                return
            self._thread_count += 1
        try:
            threading.Thread(
                target=self._run_queued_calls, name="locks.on_lost", daemon=True
            ).start()
        except RuntimeError:  # the interpreter is ending, or there are too many threads
            self._run_queued_calls()

    def _run_queued_calls(self) -> None:
        """Run calls from the queue until it is empty."""
        while True:
            with get_or_create(self, "_mutex", threading.RLock):
                if not self._calls:
                    self._thread_count -= 1
                    return
                function, args = self._calls.popleft()
            try:
                function(*args)
            except BaseException:  # even SystemExit: the thread must go on, for the later calls
                logger.exception("on_lost failed")


#: The queue of this process.
callbacks = Callbacks()
os.register_at_fork(after_in_child=callbacks.reset)
