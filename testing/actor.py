"""A call that runs in its own thread and stops before each of its steps."""

import threading
from collections.abc import Callable
from queue import Empty, Queue
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

#: The value of `waits_at` before the call has begun.
START = "start"
#: The value of `waits_at` once the call has ended.
ENDED = None


class Actor:
    """A call in a thread. After each `go` it runs to its next step or its end, and stops there.

    Attributes:
        name: `A`, `B`, and so on, in the order of the calls.
        result: The return value of the call; None until it has returned.
        error: The exception that the call raised, if any.
        waits_at: The step that the call is about to make: START before the first; ENDED once the
            call has ended.
        is_blocked: Whether the call waits for another call in the middle of a step.
        connection_ids: The ids that the database gave to the connections of the call.
        thread: The thread that runs the call.
    """

    def __init__(self, name: str, call: Callable[[], Any]) -> None:
        """Create the thread without starting it.

        Args:
            name: The name of the call in schedules and timelines.
            call: The callable to run.
        """
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        self.waits_at: str | None = START
        self.is_blocked = False
        self.connection_ids: set[int] = set()
        self._call = call
        #: Each step that the call reaches, and finally ENDED.
        self._reached_steps: Queue[str | None] = Queue()
        #: An entry for each `go`: the exception to raise, or None.
        self._go_signals: Queue[BaseException | None] = Queue()
        self._is_free = False
        self.thread = threading.Thread(target=self._run, name=f"interleaved-{name}", daemon=True)

    @property
    def has_ended(self) -> bool:
        """True once the call has returned or raised."""
        return self.waits_at is ENDED

    def start(self) -> None:
        """Start the thread. It waits for `go` before it runs the call."""
        self.thread.start()

    def go(self, error: BaseException | None = None) -> None:
        """Let the call begin, or make the step that it waits at.

        Args:
            error: An exception to raise instead of making the step. It has no effect before the
                call has begun.
        """
        self._go_signals.put(error)

    def wait_until_settled(self, seconds: float) -> bool:
        """Wait until the call reaches its next step or its end.

        Args:
            seconds: The time limit.

        Returns:
            Whether the call reached one of them in time.
        """
        try:
            self.waits_at = self._reached_steps.get(timeout=seconds)
        except Empty:
            return False
        self.is_blocked = False
        return True

    def is_between_steps(self) -> bool:
        """Return whether the call has not yet reached its next step or its end since `go`.

        In that case the call runs, or waits for another call. Call this method before
        `wait_until_settled`, which takes the step or the end out of the queue.
        """
        return self._reached_steps.empty()

    def stop_before(self, text: str) -> None:
        """Stop the calling thread, which is about to make this step, until `go` is called.

        Raises the exception that is passed to `go`. Returns at once after `set_free`.

        Args:
            text: The step, as it appears in the timeline.
        """
        if self._is_free:
            return
        self._reached_steps.put(text)
        error = self._go_signals.get()
        if error is not None:
            raise error

    def set_free(self) -> None:
        """Let the call run to its end without further stops."""
        self._is_free = True
        self._go_signals.put(None)

    def _run(self) -> None:
        """Run the call in the thread, and then close the database connections of the call."""
        self._go_signals.get()
        # Without its own context, calls that use asyncio would share asgiref's single thread for
        # the database.
        context = ThreadSensitiveContext()
        SyncToAsync.thread_sensitive_context.set(context)
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        finally:
            connections.close_all()
            executor = SyncToAsync.context_to_thread_executor.pop(context, None)
            if executor is not None:
                executor.submit(connections.close_all).result()
                executor.shutdown()
            self._reached_steps.put(ENDED)
