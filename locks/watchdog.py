"""One thread per process and client that renews all leases, and marks the lost ones.

In a cluster there is one thread for each node with leases. The thread's connection has a short
timeout and no retries. sans_io/renewals.py decides what is due and evaluates the replies. The first
lease starts the thread, which ends when there has been no lease for a while. Most leases last
milliseconds and are released before their first renewal. So a new lease wakes the thread only if
the thread would otherwise sleep past the first renewal of that lease.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .clock import now
from .connection import Address, open_connection, run_scripts
from .lazy import get_or_create
from .sans_io.protocol import Call, is_refusal_of_replica
from .sans_io.renewals import Renewals
from .sans_io.steps import run_steps

logger = logging.getLogger(__name__)

#: Seconds without anything to renew after which the thread and its connection end.
IDLE_SECONDS = 10.0
#: Seconds to wait after an unexpected error of the watchdog.
RETRY_DELAY_SECONDS = 0.05


class Watchdog(Renewals):
    """The leases of one client of this process on one server, and the thread that renews them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        #: Called when a reply shows that the server became a replica.
        self.on_server_became_replica: Callable[[], None] = lambda: None
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Set the initial state, without leases or a thread. Also used in a forked child."""
        Renewals.__init__(self)
        vars(self).pop("_schedule_changed", None)  # get_or_create() makes a new one
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        #: Time of our clock until which the thread sleeps. It is infinite while the thread computes
        #: that time, so that the thread is notified of any lease that is added meanwhile.
        self._wakes_at = math.inf

    def after_fork(self) -> None:
        """Leave the leases and the connection to the parent. Runs in the child."""
        self._disconnect()
        self.reset()

    def close(self) -> None:
        """End the thread when there is nothing left to renew. Add no more leases after this."""
        self._closed = True
        if self._thread is not None:
            self._wake()

    def wake_before(self, due: float) -> None:
        """Wake the thread if it would sleep past this time."""
        if due < self._wakes_at:
            self._wake()

    def _wake(self) -> None:
        """Wake the thread, or start it if it has ended."""
        schedule_changed = get_or_create(self, "_schedule_changed", threading.Condition)
        with schedule_changed:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(
                    target=self._run, args=(schedule_changed,), name="locks.watchdog", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    logger.warning(
                        "leases will not be renewed, because no thread can be started: %s",
                        error,
                    )
                    return
                self._thread = thread
            schedule_changed.notify()

    def _run(self, schedule_changed: threading.Condition) -> None:
        """Renew and release what is due until the thread has been idle for IDLE_SECONDS.

        A sleep ends early when `schedule_changed` is notified.
        """
        while self._sleep_until_due(schedule_changed):
            try:
                self._renew_due()
            except Exception:
                logger.exception("the watchdog failed, and tries again")
                time.sleep(RETRY_DELAY_SECONDS)

    def _sleep_until_due(self, schedule_changed: threading.Condition) -> bool:
        """Sleep until a renewal or release is due. Return False if the thread must end."""
        with schedule_changed:
            self._wakes_at = math.inf  # so any lease that is added now wakes the thread
            wake_up_at = self.plan_wake_up()
            self._wakes_at = wake_up_at
            if wake_up_at < math.inf:
                schedule_changed.wait(max(0.0, wake_up_at - now()))
                return True
            was_notified = not self._closed and schedule_changed.wait(IDLE_SECONDS)
            if was_notified or self.get_next_due() < math.inf:
                return True
            self._thread = None
            self._disconnect()
            return False

    def _renew_due(self) -> None:
        """Renew the leases and release the abandoned tokens that are due."""
        # Not part of _run(), whose local variables would keep the last locks alive while it sleeps.
        run_steps(self.generate_due_batches(), lambda batch: self._run_batch(*batch))

    def _run_batch(self, calls: Sequence[Call], timeout: float) -> list[Any]:
        """Send the calls and return their replies.

        If the connection fails, its exception is returned in place of each reply. If a reply shows
        that the server became a replica, on_server_became_replica is called.
        """
        if self._connection is None:
            self._connection = self._address.make_connection()
        try:
            open_connection(self._connection, min(timeout, self._address.timeout))
            replies = run_scripts(self._connection, calls)
        except Exception as error:
            replies = [error] * len(calls)
            self._disconnect()
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if any(is_refusal_of_replica(error) for error in errors):
            self._disconnect()
            self.on_server_became_replica()
        return replies

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
