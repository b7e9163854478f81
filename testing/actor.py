"""A call in a thread of its own, which stops before each of its steps until it may go on."""

import threading
from collections.abc import Callable
from queue import Empty, Queue
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

#: What `waits_at` is when the call has ended.
ENDED = None


class Actor:
    """One call. It moves in the time between `go` and the next `settled`."""

    def __init__(self, name: str, call: Callable[[], Any]) -> None:
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        #: The step that it is about to do; ENDED at its end.
        self.waits_at: str | None = "start"
        self.is_blocked = False
        #: The process ids of its connections in the database.
        self.backends: set[int] = set()
        self._call = call
        self._reached: Queue[str | None] = Queue()
        self._may_go: Queue[BaseException | None] = Queue()
        self._is_free = False
        self.thread = threading.Thread(target=self._run, name=f"interleaved-{name}", daemon=True)

    @property
    def has_ended(self) -> bool:
        return self.waits_at is ENDED

    def start(self) -> None:
        self.thread.start()

    def go(self, error: BaseException | None = None) -> None:
        """Do the step that it waits at, or raise `error` there."""
        self._may_go.put(error)

    def settled(self, seconds: float) -> bool:
        """Whether it reaches its next step, or its end, within these seconds."""
        try:
            self.waits_at = self._reached.get(timeout=seconds)
        except Empty:
            return False
        self.is_blocked = False
        return True

    def stop_before(self, text: str) -> None:
        """Called in the thread that is about to do this step."""
        if self._is_free:
            return
        self._reached.put(text)
        if (error := self._may_go.get()) is not None:
            raise error

    def set_free(self) -> None:
        """From now on stop at no step."""
        self._is_free = True
        self._may_go.put(None)

    def _run(self) -> None:
        self._may_go.get()
        apart = ThreadSensitiveContext()
        SyncToAsync.thread_sensitive_context.set(apart)
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        finally:
            connections.close_all()
            # asgiref's one thread for the database would be shared by all calls that use asyncio.
            executor = SyncToAsync.context_to_thread_executor.pop(apart, None)
            if executor is not None:
                executor.submit(connections.close_all).result()
                executor.shutdown()
            self._reached.put(ENDED)
