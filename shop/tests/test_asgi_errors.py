"""A server that fails in the middle of a purchase in an event loop: the answers of a node of
threads, and nothing is sold unless an answer says that it may have been."""

from __future__ import annotations

import pytest

from shop.sale.points import installed
from shop.tests.database import ReplyCutter, database_at, kill_this_threads_backend
from shop.tests.loop import Loop, in_a_loop
from shop.tests.till import at, books, buy, committed, open_sale

pytestmark = committed

#: Under RedisLock, which waits without a thread; and one that runs whole in a thread.
LOCKS = ["redis", "fence-at-write", "token", "row-lock"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_backend_that_is_killed_under_the_lock_is_unavailable_and_nothing_is_sold(
    lock: str,
) -> None:
    """The connection that broke is a thread's: the loop may not touch it, and was 500 for it."""
    open_sale(3)

    async def test(loop: Loop) -> None:
        with installed(at("after_read", kill_this_threads_backend)):
            refused = await loop.buy(lock=lock, key="k1")
        assert (refused.status, refused.body["outcome"]) == (503, "unavailable"), refused.body
        assert refused.headers["Retry-After"] == "1"
        again = await loop.buy(lock=lock, key="k1")
        assert (again.status, again.body["stock_seen"]) == (201, 3)

    in_a_loop(test)
    assert books() == (1, 2)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_commit_whose_reply_is_lost_is_unknown_and_its_order_is_replayed(lock: str) -> None:
    open_sale(3)

    async def lost(loop: Loop) -> None:
        unknown = await loop.buy(lock=lock, key="k1")
        assert (unknown.status, unknown.body["outcome"]) == (503, "unknown"), unknown.body

    with ReplyCutter() as proxy, database_at(proxy.folder):
        in_a_loop(lost)
    assert proxy.cut == 1
    again = buy(lock=lock, key="k1")
    assert (again.status, again.body["replayed"]) == (200, True)
    assert books() == (1, 2)
