"""The parts of the project that exercises use: `from workshop.kit import PollingLock, guarded`."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from django.conf import settings
from django.db import transaction
from django.db.models import F

from locks import Lease, RedisLock, Release
from locks.lock import Lock
from shop.errors import LockBusy, Lost, SoldOut
from shop.models import Product
from shop.ops.redis import locks_client
from shop.sale.locked import (
    describe_acquisition,
    describe_release,
    hold_lock,
    make_redis_lock,
    make_redis_lock_options,
)
from shop.sale.points import point_reached
from shop.sale.purchase import AnyLease, Attempt, Receipt, Stock, read_stock, sell_one, write_stock
from shop.strategies.shared.polling_lock import PollingLock, RenewalThread
from shop.strategies.token import TokenLock

#: In a rush, many buyers buy at once. The name of its product begins with this (Bench.run_rush).
RUSH_PREFIX = "rush-"
#: The ttl of the lock of `guarded` in a rush. Elsewhere the setting SHOP_LOCK_TTL applies, which is
#: only one second on the nodes. The locks of the early lessons are not renewed, so with one second
#: a correct lock would oversell on a slow laptop.
RUSH_TTL_SECONDS = 10.0
#: The last leases that buyers acquired in `fenced`, newest last. The check of lesson 8 marks the
#: newest lease as lost, and compares the fences of its two buyers. Older leases are dropped.
recent_leases: deque[Lease] = deque(maxlen=8)


class Guarded:
    """A `buy` that holds a lock during each purchase, around the transaction.

    lock_class  the class of the lock; the checks also test this class without a purchase
    """

    def __init__(self, lock_class: Callable[..., Lock]) -> None:
        self.lock_class = lock_class

    def __call__(self, attempt: Attempt) -> Receipt:
        with hold_lock(self._make_lock(attempt)) as lease:
            with transaction.atomic(durable=True):
                receipt = sell_one(attempt)
        return receipt.with_lease(lease)

    def _make_lock(self, attempt: Attempt) -> Lock:
        """Return the lock of a purchase. Its ttl is longer in a rush, when many buyers buy at once.

        RUSH_TTL_SECONDS explains the reason.
        """
        is_rush = attempt.product.startswith(RUSH_PREFIX)
        ttl = RUSH_TTL_SECONDS if is_rush else settings.SHOP_LOCK_TTL
        return self.lock_class(locks_client(), attempt.lock_name, ttl=ttl)


#: The exercises use the class under this name, like a function: `buy = guarded(MyLock)`.
guarded = Guarded


class RenewedLock(TokenLock):
    """The solved lock of lesson 5, with a thread that calls `renew(token)` until the release.

    If `renew` returns False, the thread ends early.

    PERIOD  the time between two renewals, as a fraction of the ttl
    """

    PERIOD = 1.0

    def renew(self, token: str) -> bool:
        """Renew the lock once. Return whether it still belongs to the holder with this token."""
        raise NotImplementedError

    def acquire(self, wait: float | None) -> Lease:
        lease = super().acquire(wait)
        self._renewal = RenewalThread(
            lambda: self.renew(lease.token), interval_seconds=self.ttl * self.PERIOD
        )
        return lease

    def _release(self, lease: Lease) -> Release:
        self._renewal.stop()
        return super()._release(lease)


def hold(attempt: Attempt) -> AbstractContextManager[AnyLease]:
    """Return a context manager that holds a RedisLock for this purchase.

    Unlike hold_lock(), it may be entered inside a transaction, because lesson 6 is about this
    mistake. Then the COMMIT comes after the block, so the block never reaches the injection point
    `after_commit` (shop/sale/points.py).
    """
    return hold_lock(make_redis_lock(attempt), inside_transaction=True, encloses_commit=False)


def acquire(attempt: Attempt) -> Lease:
    """Acquire the same lock as `hold`, but without a `with` block. Return its lease.

    The caller must release the lease. The purchase reaches the same injection points as with
    `hold`. Raises LockTimeout after SHOP_LOCK_WAIT seconds, and LockBackendError.
    """
    point_reached.send("acquire")
    lock = _LockWithReleasePoints(
        locks_client(), attempt.lock_name, **make_redis_lock_options(attempt)
    )
    lease = lock.acquire(settings.SHOP_LOCK_WAIT)
    point_reached.send("acquired", **describe_acquisition(lease))
    return lease


class _LockWithReleasePoints(RedisLock):
    """A RedisLock whose release reaches the same injection points as `with hold_lock(lock)`."""

    def _release(self, lease: Lease) -> Release:
        point_reached.send("release", token=lease.token)
        outcome = super()._release(lease)
        details = describe_release(lease)
        details["outcome"] = outcome  # the lease stores its outcome only after this method
        point_reached.send("released", **details)
        return outcome


class _LeaseRecordingLock(RedisLock):
    """A RedisLock that appends each of its leases to `recent_leases`."""

    def acquire(self, wait: float | None) -> Lease:
        lease = super().acquire(wait)
        recent_leases.append(lease)
        return lease


def fenced(sell: Callable[[Attempt, AnyLease], Receipt]) -> Callable[[Attempt], Receipt]:
    """Return a `buy` that calls `sell(attempt, lease)` in a transaction while it holds a RedisLock.

    If the lock has ended meanwhile, only `sell` can refuse the buyer. For this it compares
    `lease.fence` with the fence in the product's row.
    """

    def buy(attempt: Attempt) -> Receipt:
        lock = _LeaseRecordingLock(
            locks_client(), attempt.lock_name, **make_redis_lock_options(attempt)
        )
        with hold_lock(lock) as lease:
            with transaction.atomic(durable=True):
                receipt = sell(attempt, lease)
        return receipt.with_lease(lease)

    return buy
