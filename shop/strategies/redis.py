"""RedisLock, with its fence claimed at the read.

The first statement of the transaction claims the fence in the database: a holder that was paused
until its lock passed on finds a higher one there and sells nothing. Claimed at the write instead,
two holders could both have read the same stock before (strategy `fence-at-write`).
"""

from shop.sale.fences import sell_fenced
from shop.sale.locked import redis_lock, sell_under
from shop.sale.strategy import Strategy

STRATEGY = Strategy(
    place=160,
    title="RedisLock with a fence",
    article="A0 A1 A2 A3 A4, and beyond",
    summary="A fair, renewed lock: its fence, claimed at the read, stops a holder that lost it.",
    marks=("lock.hold(wait=", "UPDATE product SET fence"),
    buy=sell_under(redis_lock, sell_fenced),
    sound=True,
    renewed=True,
    fenced=True,
)
