"""What an exercise imports, and nothing else: `from workshop.kit import PollingLock, guarded`."""

from __future__ import annotations

from collections.abc import Callable

from locks.classic.polling import PollingLock
from locks.classic.renewal import Renewal
from locks.lock import Lock
from shop.locked import sell_under
from shop.purchase import Attempt, Receipt
from shop.redis import locks_client
from workshop.commands import Commands

__all__ = ["PollingLock", "Renewal", "guarded"]

#: Products of a rush begin with this. Their locks live long: else a slow laptop would make a right
#: lock, which does not renew yet, oversell.
RUSH = "rush-"
#: Seconds that a lock lives: in a rush, and everywhere else.
RUSH_TTL, TTL = 10.0, 1.0


class Guarded:
    """A `buy` that sells under a lock of this kind, which the checks also try alone."""

    def __init__(self, kind: Callable[..., Lock]) -> None:
        self.kind = kind
        self._buy = sell_under(self._lock_for)

    def __call__(self, attempt: Attempt) -> Receipt:
        return self._buy(attempt)

    def _lock_for(self, attempt: Attempt) -> Lock:
        ttl = RUSH_TTL if attempt.product.startswith(RUSH) else TTL
        return self.kind(Commands(locks_client(), attempt.key or ""), attempt.lock_name, ttl=ttl)


def guarded(kind: Callable[..., Lock]) -> Guarded:
    """The `buy` of a shop that sells under this lock: the lock outside, the transaction inside."""
    return Guarded(kind)
