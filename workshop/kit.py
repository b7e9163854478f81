"""The only module that an exercise imports: `from workshop.kit import PollingLock, guarded`."""

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
from shop.sale.locked import acquisition_facts, held, redis_lock, redis_lock_options, release_facts
from shop.sale.points import point
from shop.sale.purchase import AnyLease, Attempt, Receipt, Stock, read_stock, sell_one, write_stock
from shop.strategies.shared.polling_lock import PollingLock, RenewalThread
from shop.strategies.token import TokenLock

#: Products of a rush begin with this. Their locks live long: else a slow laptop would make a right
#: lock, which does not renew yet, oversell.
RUSH = "rush-"
#: Seconds that a lock lives in a rush; everywhere else it is the setting.
RUSH_TTL = 10.0
#: The last leases that `fenced` was given, for the checks, which take them away.
leases: deque[Lease] = deque(maxlen=8)


class Guarded:
    """The `buy` of a shop that sells under a lock of this kind: the lock outside, the transaction
    inside. The checks also try the lock on its own."""

    def __init__(self, kind: Callable[..., Lock]) -> None:
        self.kind = kind

    def __call__(self, attempt: Attempt) -> Receipt:
        with held(self._make_lock(attempt)) as lease:
            with transaction.atomic(durable=True):
                receipt = sell_one(attempt)
        return receipt.with_lease_facts(lease)

    def _make_lock(self, attempt: Attempt) -> Lock:
        ttl = RUSH_TTL if attempt.product.startswith(RUSH) else settings.SHOP_LOCK_TTL
        return self.kind(locks_client(), attempt.lock_name, ttl=ttl)


#: How an exercise says it: `buy = guarded(MyLock)`.
guarded = Guarded


class RenewedLock(TokenLock):
    """A right lock (lessons 4 and 5) with a thread that calls `renew(token)` while it is held.

    PERIOD  part of the ttl between two renewals
    """

    PERIOD = 1.0

    def renew(self, token: str) -> bool:
        """One renewal; True if the lock is still ours."""
        raise NotImplementedError

    def acquire(self, wait: float | None) -> Lease:
        lease = super().acquire(wait)
        self._renewal = RenewalThread(lambda: self.renew(lease.token), every=self.ttl * self.PERIOD)
        return lease

    def _release(self, lease: Lease) -> Release:
        self._renewal.stop()
        return super()._release(lease)


def hold(attempt: Attempt) -> AbstractContextManager[AnyLease]:
    """Hold a good lock for this purchase; waits for it. It does not mind where it is used."""
    return held(redis_lock(attempt), inside_transaction=True, encloses_commit=False)


def acquire(attempt: Attempt) -> Lease:
    """Return a lease on the same lock, without a block: the caller releases it."""
    point.send("acquire")
    lock = _ReportedLock(locks_client(), attempt.lock_name, **redis_lock_options(attempt))
    lease = lock.acquire(settings.SHOP_LOCK_WAIT)
    point.send("acquired", **acquisition_facts(lease))
    return lease


class _ReportedLock(RedisLock):
    """Reports the points of a release, which the caller of `acquire` makes by hand."""

    def _release(self, lease: Lease) -> Release:
        point.send("release", token=lease.token)
        outcome = super()._release(lease)
        point.send("released", **(release_facts(lease) | {"outcome": outcome}))
        return outcome


class _LeaseRecordingLock(RedisLock):
    """Notes each lease in `leases`."""

    def acquire(self, wait: float | None) -> Lease:
        lease = super().acquire(wait)
        leases.append(lease)
        return lease


def fenced(sell: Callable[[Attempt, AnyLease], Receipt]) -> Callable[[Attempt], Receipt]:
    """A `buy` that calls `sell(attempt, lease)` inside a transaction, under RedisLock."""

    def buy(attempt: Attempt) -> Receipt:
        lock = _LeaseRecordingLock(locks_client(), attempt.lock_name, **redis_lock_options(attempt))
        with held(lock) as lease:
            with transaction.atomic(durable=True):
                receipt = sell(attempt, lease)
        return receipt.with_lease_facts(lease)

    return buy
