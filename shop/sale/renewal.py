"""A watchdog for one lock: a daemon thread that renews it until it is stopped (A2, A3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import redis

from shop.sale.points import point

logger = logging.getLogger(__name__)


class Renewal:
    """Calls `renew` every `every` seconds, until it says False or `stop`.

    renew  one attempt; True: the lock is still ours, False: it is not, and renewing ends

    Being a thread of the holder's process it ends with it (A2), and stops with it: while the
    process is paused nothing is renewed. An error is logged and the next round tries again.
    """

    def __init__(self, renew: Callable[[], bool], *, every: float) -> None:
        self._renew = renew
        self._every = every
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="lock-renewal", daemon=True).start()

    def stop(self) -> None:
        """Renew no more. A renewal that is under way may still arrive; it must know the owner."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            point("watchdog:before_renew")
            try:
                if not self._renew():
                    return
            except redis.RedisError as error:
                logger.warning("renewal failed, the next is due in %.3f s: %s", self._every, error)
