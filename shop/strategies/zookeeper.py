"""ZooKeeper: an ephemeral sequential node, and a watch on the one before.

FLAW: a process that is paused past its session timeout (see locks/classic/zookeeper.py).
"""

from __future__ import annotations

from functools import cache
from threading import Lock as Mutex
from typing import Any

from django.conf import settings

from locks import Lock
from locks.classic.zookeeper import ZookeeperLock, connect
from shop.errors import Unavailable
from shop.sale.locked import sell_under
from shop.sale.purchase import Attempt
from shop.sale.strategy import Strategy

#: Seconds to establish a session; also how long others wait for the thread that does.
CONNECT_TIMEOUT = 5.0
_connecting = Mutex()  # else every thread of a rush would open a session


@cache
def _connected() -> Any:
    return connect(settings.ZOOKEEPER_HOSTS, ttl=settings.SHOP_LOCK_TTL, wait=CONNECT_TIMEOUT)


def client() -> Any:
    """This process's session, opened by its first buyer. Raises Unavailable."""
    if not _connecting.acquire(timeout=CONNECT_TIMEOUT):
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
