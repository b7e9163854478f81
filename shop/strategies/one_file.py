"""OneFileLock, the lock of one page, with its fence claimed at the read as in `redis`.

What makes the sale right is the fence: a holder that was paused until the lock passed on finds a
higher one in the database and sells nothing. The queue of RedisLock only makes the wait short and
fair; here the first to ask after the release has the lock.
"""

from locks.one_file import OneFileLock
from shop.sale.fences import sell_fenced
from shop.sale.locked import on_redis, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    place=165,
    title="A lock in one file, with a fence",
    summary="The lock that most should copy: no queue, and the same fence, claimed at the read.",
    marks=("lock.hold(wait=", "UPDATE product SET fence"),
    buy=sell_under(on_redis(OneFileLock, max_hold="SHOP_LOCK_MAX_HOLD"), sell_fenced),
    sound=True,
    renewed=True,
    fenced=True,
)
