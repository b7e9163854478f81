"""Tests of checkout.py and no_lock.py: single buyers, forced interleavings, a pause, a rush.

For contrast, a forced interleaving makes unguarded code oversell.
"""

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
from django.db import IntegrityError, OperationalError, connection, transaction
from redis.backoff import NoBackoff
from redis.retry import Retry

from examples import checkout, no_lock
from examples.models import Order, Product
from examples.tests.buyers import BuyerProcess, with_points
from locks import LockError, RedisLock
from shop.schedules.interleaving import Interleaving, StoppingActor
from shop.tests.purchases import eventually

MODULES = ("checkout", "no_lock")
Buy = Callable[..., Order]


def put_on_sale(units: int) -> int:
    """Return the id of a new product with these units."""
    return Product.objects.create(name="apple", amount=units).pk


def count_orders_and_stock() -> tuple[int, int]:
    """Return the number of orders and the stock left."""
    return Order.objects.count(), Product.objects.get().amount


def buy_unguarded(*, product: int, buyer: str, key: str) -> Order:
    """Sell a unit. FLAW: the UPDATE has no condition, and no lock guards the read before it."""
    with transaction.atomic():
        amount = Product.objects.get(pk=product).amount
        if amount < 1:
            raise no_lock.SoldOut
        Product.objects.filter(pk=product).update(amount=amount - 1)
        return Order.objects.create(product_id=product, buyer=buyer, key=key)


@pytest.fixture(params=["one file", "RedisLock"])
def _with_each_lock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test twice: with OneFileLock, and with RedisLock in its place.

    The docstring of checkout.py tells the user how to replace one with the other.
    """
    if request.param == "RedisLock":
        monkeypatch.setattr(checkout, "OneFileLock", RedisLock)
        monkeypatch.setattr(checkout, "LockTimeout", LockError)


@pytest.fixture(params=MODULES)
def buy(request: pytest.FixtureRequest, client: redis.Redis) -> Buy:
    """Run the test twice: with buy() of checkout.py, and with buy() of no_lock.py."""
    return partial(checkout.buy, client) if request.param == "checkout" else no_lock.buy


# --- one buyer ----------------------------------------------------------------------------------


def test_repeated_key_returns_its_order_to_the_same_buyer_only(buy: Buy) -> None:
    """The same buyer gets the same order again. Another buyer cannot use the key."""
    product = put_on_sale(2)
    first = buy(product=product, buyer="ann", key="k1")
    assert buy(product=product, buyer="ann", key="k1") == first
    with pytest.raises(IntegrityError):
        buy(product=product, buyer="bob", key="k1")
    assert count_orders_and_stock() == (1, 1)


def test_buyer_of_the_last_unit_gets_its_order_again(buy: Buy) -> None:
    """A retry returns the order, although no unit is left."""
    product = put_on_sale(1)
    first = buy(product=product, buyer="ann", key="k1")
    assert buy(product=product, buyer="ann", key="k1") == first
    with pytest.raises((checkout.SoldOut, no_lock.SoldOut)):
        buy(product=product, buyer="bob", key="k2")
    assert count_orders_and_stock() == (1, 0)


def test_unknown_product_raises_does_not_exist(client: redis.Redis) -> None:
    with pytest.raises(Product.DoesNotExist):
        checkout.buy(client, product=7, buyer="ann", key="k1")


@pytest.mark.usefixtures("_with_each_lock")
def test_taken_lock_raises_try_again(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A RedisLock keeps the buyer out in both cases, because both kinds of lock use the same key.

    Once the lock is released, the buyer gets a unit.
    """
    product = put_on_sale(1)
    monkeypatch.setattr(checkout, "LOCK_WAIT_SECONDS", 0.1)
    with (
        RedisLock(client, f"product:{product}", ttl=10).hold(wait=0),
        pytest.raises(checkout.TryAgain),
    ):
        checkout.buy(client, product=product, buyer="ann", key="k1")
    assert checkout.buy(client, product=product, buyer="ann", key="k1").key == "k1"


@pytest.mark.usefixtures("_with_each_lock")
def test_nothing_is_sold_during_a_redis_outage() -> None:
    product = put_on_sale(1)
    unreachable_redis = redis.Redis(port=1, socket_timeout=1, retry=Retry(NoBackoff(), 0))
    with pytest.raises(checkout.TryAgain):
        checkout.buy(unreachable_redis, product=product, buyer="ann", key="k1")
    assert count_orders_and_stock() == (0, 1)


def test_lost_connection_after_a_refusal_raises_try_again(buy: Buy) -> None:
    """No unit is left, and then the query for an earlier order with this key fails."""

    def lose_connection(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("SELECT") and "buyer" in sql:
            raise OperationalError("server closed the connection unexpectedly")
        return execute(sql, *rest)

    product = put_on_sale(0)
    with (
        connection.execute_wrapper(lose_connection),
        pytest.raises((checkout.TryAgain, no_lock.TryAgain)),
    ):
        buy(product=product, buyer="ann", key="k1")


def test_purchase_inside_a_transaction_is_refused(buy: Buy) -> None:
    product = put_on_sale(1)
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        buy(product=product, buyer="ann", key="k1")
    assert count_orders_and_stock() == (0, 1)


# --- two buyers; the second begins before each statement of the first ---------------------------

#: The points of with_points() in a purchase, in order.
STATEMENTS = {
    "checkout": ("UPDATE product", "SELECT", "UPDATE product", "INSERT order"),
    "no_lock": ("UPDATE product", "INSERT order"),
}


@pytest.mark.parametrize(
    ("module", "statement_count"),
    [
        (module, statement_count)
        for module, statements in STATEMENTS.items()
        for statement_count in range(1, len(statements) + 1)
    ],
)
def test_one_buyer_gets_the_unit_in_every_schedule(
    module: str, statement_count: int, client: redis.Redis
) -> None:
    """Bob begins when Ann is about to send her statement number `statement_count`."""
    product = put_on_sale(1)
    buy: Buy = no_lock.buy if module == "no_lock" else partial(checkout.buy, client)
    ann = with_points(partial(buy, product=product, buyer="ann", key="k1"))
    bob = with_points(partial(buy, product=product, buyer="bob", key="k2"))
    with Interleaving() as run:
        actor_a = run.start("A", ann)
        for statement in STATEMENTS[module][:statement_count]:
            actor_a.run_to(statement)
        actor_b = run.start("B", bob)
        # Let B continue until it waits for the lock or for a row of A, or has ended. A purchase
        # has at most four points, so B has ended by the fifth wait.
        for _ in range(5):
            if not actor_b.wait_until_settled(0.2) or actor_b.has_ended:
                break
            actor_b.resume()
        errors = [finish_and_catch_error(actor_a), finish_and_catch_error(actor_b)]
    assert [type(error).__name__ for error in errors if error] == ["SoldOut"]
    assert count_orders_and_stock() == (1, 0)


def finish_and_catch_error(actor: StoppingActor) -> Exception | None:
    """Let the actor finish. Return the exception that it raises, or None."""
    try:
        actor.finish()
    except Exception as error:
        return error
    return None


def test_unguarded_schedule_sells_one_unit_twice() -> None:
    """Both buyers read the stock before either writes it."""
    product = put_on_sale(1)
    ann = with_points(partial(buy_unguarded, product=product, buyer="ann", key="k1"))
    bob = with_points(partial(buy_unguarded, product=product, buyer="bob", key="k2"))
    with Interleaving() as run:
        actor_a = run.start("A", ann).run_to("UPDATE product")
        actor_b = run.start("B", bob).run_to("UPDATE product")
        actor_a.finish()
        actor_b.finish()
    assert count_orders_and_stock() == (2, 0)


# --- a pause ------------------------------------------------------------------------------------


def buy_after_a_pause(product: int, client: redis.Redis) -> str:
    """Stop Ann before she claims the fence, until her lock has expired and Bob has bought.

    Return the outcome of Ann's purchase: `TryAgain`, `SoldOut` or `order` with a number.
    """
    with BuyerProcess("checkout", product, ttl=0.5) as ann:
        ann.ask(name="ann")
        assert ann.read_reply() == "stopped"
        os.kill(ann.process.pid, signal.SIGSTOP)
        key = f"lock:{{product:{product}}}"
        assert client.exists(key), "Ann should hold the lock"
        eventually(lambda: not client.exists(key), what="the lock of the stopped holder expires")
        checkout.buy(client, product=product, buyer="bob", key="bob")
        os.kill(ann.process.pid, signal.SIGCONT)
        ann.ask()  # lets Ann continue
        return str(ann.read_reply())


def test_paused_holder_is_fenced_off(client: redis.Redis) -> None:
    """Bob buys one of two units during Ann's pause. Then the fence refuses Ann's purchase."""
    assert buy_after_a_pause(put_on_sale(2), client) == "TryAgain"
    assert count_orders_and_stock() == (1, 1)


def test_paused_holder_sells_if_the_fence_is_removed(client: redis.Redis) -> None:
    """Ann has lost the lock, so only the fence can stop her.

    After Bob's purchase the test sets the fence back to 0, and Ann sells.
    """
    product = put_on_sale(2)
    original_buy = checkout.buy

    def buy_and_reset_fence(*args: object, **options: object) -> Order:
        order = original_buy(*args, **options)  # type: ignore[arg-type]
        Product.objects.update(fence=0)
        return order

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkout, "buy", buy_and_reset_fence)
        assert buy_after_a_pause(product, client).startswith("order ")


# --- a rush -------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_rush_from_two_processes_sells_exactly_the_stock(module: str) -> None:
    """40 of the 60 buyers are refused."""
    product = put_on_sale(20)
    with BuyerProcess(module, product) as first, BuyerProcess(module, product) as second:
        first.ask(buyers=30)
        second.ask(buyers=30)
        outcomes = [*first.read_reply(), *second.read_reply()]
    assert outcomes.count("SoldOut") == 40
    assert len(set(outcomes) - {"SoldOut"}) == 20, "each order should have a different number"
    assert count_orders_and_stock() == (20, 0)
