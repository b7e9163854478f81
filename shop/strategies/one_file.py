"""OneFileLock, the lock of one page, with its fence claimed at the read as in `redis`.

What makes the sale right is the fence: a holder that was paused until the lock passed on finds a
higher one in the database and sells nothing. The queue of RedisLock only makes the wait short and
fair; here the first to ask after the release has the lock.
"""

from django.conf import settings

from locks.one_file import OneFileLock
from shop.ops.redis import locks_client
from shop.sale.fences import sell_fenced
from shop.sale.locked import sell_under
from shop.sale.purchase import Attempt
from shop.sale.strategy import Strategy


def lock_for(attempt: Attempt) -> OneFileLock:
    return OneFileLock(
        locks_client(),
        attempt.lock_name,
        ttl=settings.SHOP_LOCK_TTL,
        max_hold=settings.SHOP_LOCK_MAX_HOLD,
    )


STRATEGY = Strategy(
    place=165,
    name="one-file",
    title="A lock in one file, with a fence",
    article="beyond",
    summary="The lock that most should copy: no queue, and the same fence, claimed at the read.",
    marks=("lock.hold(wait=", "UPDATE product SET fence"),
    buy=sell_under(lock_for, sell_fenced),
    sound=True,
    renewed=True,
    fenced=True,
)
