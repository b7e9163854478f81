"""Purchases in an event loop, as on an asgi node.

The tests check the limit on waiting buyers, clients that disconnect, and servers that fail. To
cancel the task of a purchase has the same effect as a client that disconnects.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from pytest_django import Settings

from shop.ops.logs import request_id
from shop.sale import points, waiting_room
from shop.sale.points import use_probe
from shop.tests.database import CommitReplyDropper, connect_django_to, kill_this_threads_backend
from shop.tests.loop import ShopInLoop, run_in_loop
from shop.tests.purchases import (
    APPLE,
    FirstBuyerGate,
    JsonReply,
    buy,
    committed,
    count_orders_and_stock,
    make_probe,
    open_sale,
)

pytestmark = committed


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait until the condition is true. run_in_loop() limits the wait."""
    while not condition():
        await asyncio.sleep(0.005)


@asynccontextmanager
async def queue_buyers(
    shop: ShopInLoop, lock: str, waiting: int
) -> AsyncIterator[tuple[FirstBuyerGate, list[asyncio.Task[JsonReply]]]]:
    """In the block, buyer `b0` is stopped in the critical section, and other buyers wait for it.

    Yields the gate that stops `b0`, and the tasks of all purchases, `b0` first. The buyer `b1` has
    the Idempotency-Key `k1`, and so on.

    waiting  the number of buyers who wait
    """
    gate = FirstBuyerGate()

    def buy_as(number: int) -> asyncio.Task[JsonReply]:
        return asyncio.create_task(shop.buy(lock=lock, buyer=f"b{number}", key=f"k{number}"))

    # The gate stops the first buyer at `after_read`, which every purchase reaches in a thread. At
    # points that are reached in the event loop, the gate only counts purchases.
    points.install_probe(gate, may_block=lambda point: False)
    try:
        purchases = [buy_as(0)]
        await wait_until(gate.first_buyer_inside.is_set)
        purchases += [buy_as(number) for number in range(1, waiting + 1)]
        await wait_until(lambda: gate.purchase_count == waiting + 1)
        yield gate, purchases
    finally:
        gate.may_continue.set()
        points.install_probe(None)


def test_queued_purchase_ends_if_the_client_disconnects(settings: Settings) -> None:
    """A buyer who waits for the lock without a thread leaves the queue if its client disconnects.

    At most one buyer may wait. Another buyer can take the place at once.
    """
    settings.SHOP_MAX_WAITING = 1
    open_sale(10)

    async def test(shop: ShopInLoop) -> None:
        async with queue_buyers(shop, "redis", waiting=1) as (_, purchases):
            refusal = await shop.buy(buyer="b9")
            assert (refusal.status, refusal.body["outcome"]) == (429, "full")
            purchases[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await purchases[1]
            assert waiting_room.purchases_under_way[APPLE] == 1
            next_purchase = asyncio.create_task(shop.buy(buyer="b9"))
            await wait_until(lambda: waiting_room.purchases_under_way[APPLE] == 2)
        assert ((await purchases[0]).status, (await next_purchase).status) == (201, 201)
        # The cancelled purchase of b1 bought nothing, so its key buys now.
        retry = await shop.buy(buyer="b1", key="k1")
        assert (retry.status, retry.body["replayed"]) == (201, False)

    run_in_loop(test)
    assert count_orders_and_stock() == (3, 7)
    assert not waiting_room.purchases_under_way


@pytest.mark.parametrize("lock", ["token", "row-lock"])
def test_purchase_that_waits_in_a_thread_completes_after_a_disconnect(
    lock: str, settings: Settings
) -> None:
    """A thread that waits for a lock or a row cannot be stopped, so the purchase continues.

    The same happens in a node without an event loop (gunicorn's gthread). A retry with the same key
    is answered with the order of that purchase.
    """
    settings.SHOP_MAX_WAITING = 1
    open_sale(10)

    async def test(shop: ShopInLoop) -> None:
        async with queue_buyers(shop, lock, waiting=1) as (_, purchases):
            purchases[1].cancel()
            await asyncio.sleep(0)
            assert (await shop.buy(lock=lock, buyer="b9")).status == 429, (
                "the waiting purchase should still count against SHOP_MAX_WAITING"
            )
        for purchase in purchases:
            with suppress(asyncio.CancelledError):
                await purchase
        retry = await shop.buy(lock=lock, buyer="b1", key="k1")
        assert (retry.status, retry.body["replayed"]) == (200, True)

    run_in_loop(test)
    assert count_orders_and_stock() == (2, 8)
    assert not waiting_room.purchases_under_way


def test_purchase_without_a_thread_ends_if_the_client_disconnects() -> None:
    """Under `token` a purchase runs in a thread. As long as it waits for one, it can be cancelled.

    The node has only one thread for such purchases, and another purchase is stopped in it.
    """
    open_sale(10)

    async def test(shop: ShopInLoop) -> None:
        threads = shop.application.threads.whole_purchases
        async with queue_buyers(shop, "token", waiting=0) as (gate, purchases):
            queued = asyncio.create_task(shop.buy(lock="token", buyer="b9"))
            await wait_until(threads._work_queue.qsize)  # until the queue is not empty
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
        assert (await purchases[0]).status == 201
        assert (await shop.buy(lock="token")).body["stock_seen"] == 9
        assert gate.purchase_count == 1

    run_in_loop(test, thread_count=1)
    assert count_orders_and_stock() == (2, 8)


@pytest.mark.parametrize("lock", ["redis", "token", "row-lock"])
def test_purchase_completes_after_a_disconnect_in_the_critical_section(lock: str) -> None:
    """The client of the lock's holder disconnects: its purchase still completes.

    Then the next buyer gets the lock, and reads a stock that is lower by one.
    """
    open_sale(10)

    async def test(shop: ShopInLoop) -> None:
        async with queue_buyers(shop, lock, waiting=1) as (_, purchases):
            for _ in range(3):  # a repeated cancel must not free the lock during the write
                purchases[0].cancel()
                await asyncio.sleep(0)
                assert not purchases[0].done()
        with pytest.raises(asyncio.CancelledError):
            await purchases[0]
        assert (await purchases[1]).body["stock_seen"] == 9
        retry = await shop.buy(lock=lock, buyer="b0", key="k0")
        assert (retry.status, retry.body["replayed"]) == (200, True)

    run_in_loop(test)
    assert count_orders_and_stock() == (2, 8)


# --- a server that fails during a purchase ------------------------------------------------------


@pytest.mark.parametrize("lock", ["redis", "token"])
def test_lost_connection_while_holding_the_lock_is_unavailable(lock: str) -> None:
    """PostgreSQL ends the connection of a purchase after the read of the stock.

    The status is 503, not 500, and the lock is released. Also, the context variable `request_id` is
    set in the thread in which the purchase runs, so that its log lines contain the id.
    """
    open_sale(3)
    request_ids_in_thread: list[str] = []

    def lose_connection() -> None:
        request_ids_in_thread.append(request_id.get())
        kill_this_threads_backend()

    async def test(shop: ShopInLoop) -> None:
        with use_probe(make_probe("after_read", lose_connection)):
            refusal = await shop.buy(lock=lock, key="k1")
        assert request_ids_in_thread == [refusal.headers["X-Request-ID"]]
        assert (refusal.status, refusal.body["outcome"]) == (503, "unavailable"), refusal.body
        assert refusal.headers["Retry-After"] == "1"
        assert not waiting_room.purchases_under_way
        retry = await shop.buy(lock=lock, key="k1")
        assert (retry.status, retry.body["stock_seen"]) == (201, 3)

    run_in_loop(test)
    assert count_orders_and_stock() == (1, 2)


@pytest.mark.parametrize("lock", ["redis", "token"])
def test_lost_commit_reply_is_unknown(lock: str) -> None:
    """PostgreSQL's reply to the COMMIT is lost. A retry with the same key gets the order."""
    open_sale(3)

    async def buy_without_reply(shop: ShopInLoop) -> None:
        reply = await shop.buy(lock=lock, key="k1")
        assert (reply.status, reply.body["outcome"]) == (503, "unknown"), reply.body

    with CommitReplyDropper() as proxy, connect_django_to(proxy.folder):
        run_in_loop(buy_without_reply)
    assert proxy.has_lost_reply
    retry = buy(lock=lock, key="k1")
    assert (retry.status, retry.body["replayed"]) == (200, True)
    assert count_orders_and_stock() == (1, 2)
