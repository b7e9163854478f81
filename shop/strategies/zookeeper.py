"""ZooKeeper: an ephemeral sequential node, and a watch on the one before.

FLAW: a process that is paused past its session timeout (locks/classic/zookeeper.py tells how).
"""

from __future__ import annotations

from functools import cache
from threading import Lock as Mutex
from typing import Any

from django.conf import settings

from locks import Lock
from locks.classic.zookeeper import ZookeeperLock, connect
from shop.errors import Unavailable
from shop.locked import sell_under
from shop.purchase import Attempt
from shop.strategy import Strategy

#: Seconds for a session to begin. While a first buyer tries, others wait no longer than that.
PATIENCE = 5.0
_connecting = Mutex()  # or every thread of a rush would begin one


@cache
def _connected() -> Any:
    return connect(settings.ZOOKEEPER_HOSTS, ttl=settings.SHOP_LOCK_TTL, wait=PATIENCE)


def client() -> Any:
    """The session of this process, begun by its first buyer."""
    if not _connecting.acquire(timeout=PATIENCE):
        raise Unavailable("ZooKeeper does not answer; nothing was sold")
    try:
        return _connected()
    finally:
        _connecting.release()


def lock_for(attempt: Attempt) -> Lock:
    if not settings.ZOOKEEPER_HOSTS:
        raise Unavailable("there is no ZooKeeper: set ZOOKEEPER_HOSTS; nothing was sold")
    return ZookeeperLock(client(), attempt.lock_name, ttl=settings.SHOP_LOCK_TTL)


STRATEGY = Strategy(
    name="zookeeper",
    title="ZooKeeper",
    article="A1",
    summary="First come, first served, and gone with its session; a paused process loses that.",
    buy=sell_under(lock_for),
    needs="ZOOKEEPER_HOSTS",
    backend="zookeeper",
    renewed=True,
)
