"""FLAW: the lock stops the threads of one process, and no other process.

This is `synchronized` of article A1 (docs/sources.md). It is right "if it is a single process", as
the article says, but useless for a shop that runs in two processes.

    time 0.0   A, in one worker, takes the lock and reads a stock of 1
    time 0.1   B, in another worker, takes its own lock of the same name and reads a stock of 1
    time 0.2   both sell the unit

A rush (many buyers at the same moment) oversells if there is more than one worker. With a single
worker the shop sells correctly.
"""

import math
import os
import secrets
import threading

from django.conf import settings
from django.db import transaction

from locks import Lease, Lock, LockTimeout, Release
from locks.clock import now
from shop.sale.locked import hold_lock
from shop.sale.purchase import Attempt, Receipt, sell_one
from shop.sale.strategy import Strategy

#: Lock name -> lock. Locks are never removed, because a shop has only one for each product.
_locks: dict[str, threading.Lock] = {}
# A child process does not have the threads that hold the locks, so nothing would release them.
os.register_at_fork(after_in_child=_locks.clear)


class ProcessLock(Lock):
    """A lock that is a threading.Lock, one per name. It ends with the process, without a ttl."""

    def acquire(self, wait: float | None) -> Lease:
        # setdefault() is atomic, so all threads get the same lock.
        lock = _locks.setdefault(self.name, threading.Lock())
        started_at = now()
        timeout = -1.0  # no limit
        if wait is not None:
            timeout = max(0.0, wait)
        if not lock.acquire(timeout=timeout):
            raise LockTimeout(name=self.name)

        def release(lease: Lease) -> Release:
            lock.release()
            return Release.RELEASED

        return Lease(
            name=self.name,
            token=secrets.token_hex(16),
            deadline=math.inf,
            release=release,
            waited_seconds=now() - started_at,
        )


def buy(attempt: Attempt) -> Receipt:
    lock = ProcessLock(attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)
    with hold_lock(lock) as lease:
        with transaction.atomic(durable=True):
            receipt = sell_one(attempt)
    return receipt.with_lease(lease)


STRATEGY = Strategy(
    rank=20,
    title="Lock in one process",
    article="A1 synchronized",
    summary="Exact in a single process; a second process has its own lock.",
    highlights=("setdefault(self.name, threading.Lock())", "lock.acquire("),
    buy=buy,
    backend="process",
    rush_verdict="oversold",
)
