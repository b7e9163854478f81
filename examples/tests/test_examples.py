"""The examples under forced interleavings, a pause and a rush; for contrast, what a copy without
their idea does."""

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
from examples.tests.buyers import Child, stepped
from locks import LockError, RedisLock
from shop.schedules.interleaving import Interleaving, StoppingActor
from shop.tests.purchases import eventually

MODULES = ("checkout", "no_lock")
Buy = Callable[..., Order]


def on_sale(units: int) -> int:
    return Product.objects.create(name="apple", amount=units).pk


def books() -> tuple[int, int]:
    """Orders, and stock left."""
    return Order.objects.count(), Product.objects.get().amount


def plain(*, product: int, buyer: str, key: str) -> Order:
    """FLAW: read, check, write back, as a shop without any of this does."""
    with transaction.atomic():
        amount = Product.objects.get(pk=product).amount
        if amount < 1:
            raise no_lock.SoldOut
        Product.objects.filter(pk=product).update(amount=amount - 1)
        return Order.objects.create(product_id=product, buyer=buyer, key=key)


@pytest.fixture(params=["one file", "RedisLock"])
def _either_lock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """checkout.py with each of its locks, changed as its docstring says."""
    if request.param == "RedisLock":
        monkeypatch.setattr(checkout, "OneFileLock", RedisLock)
        monkeypatch.setattr(checkout, "LockTimeout", LockError)


@pytest.fixture(params=MODULES)
def buy(request: pytest.FixtureRequest, client: redis.Redis) -> Buy:
    return partial(checkout.buy, client) if request.param == "checkout" else no_lock.buy


# --- one buyer ----------------------------------------------------------------------------------


def test_key_repeats_its_order_and_refuses_another_buyer(buy: Buy) -> None:
    """The same key gets the same order; with another buyer's key nothing is sold."""
    product = on_sale(2)
    first = buy(product=product, buyer="ann", key="k1")
    assert buy(product=product, buyer="ann", key="k1") == first
    with pytest.raises(IntegrityError):
        buy(product=product, buyer="bob", key="k1")
    assert books() == (1, 1)


def test_buyer_of_the_last_unit_may_ask_again(buy: Buy) -> None:
    """The answer is not `sold out`."""
    product = on_sale(1)
    first = buy(product=product, buyer="ann", key="k1")
    assert buy(product=product, buyer="ann", key="k1") == first
    with pytest.raises((checkout.SoldOut, no_lock.SoldOut)):
        buy(product=product, buyer="bob", key="k2")
    assert books() == (1, 0)


def test_unknown_product_is_not_retried(client: redis.Redis) -> None:
    with pytest.raises(Product.DoesNotExist):
        checkout.buy(client, product=7, buyer="ann", key="k1")


@pytest.mark.usefixtures("_either_lock")
def test_taken_lock_is_a_reason_to_ask_again(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = on_sale(1)
    monkeypatch.setattr(checkout, "LOCK_WAIT_SECONDS", 0.1)
    with (
        RedisLock(client, f"product:{product}", ttl=10).hold(wait=0),
        pytest.raises(checkout.TryAgain),
    ):
        checkout.buy(client, product=product, buyer="ann", key="k1")
    assert checkout.buy(client, product=product, buyer="ann", key="k1").key == "k1"


@pytest.mark.usefixtures("_either_lock")
def test_no_unit_is_sold_while_redis_is_down() -> None:
    product = on_sale(1)
    nobody = redis.Redis(port=1, socket_timeout=1, retry=Retry(NoBackoff(), 0))
    with pytest.raises(checkout.TryAgain):
        checkout.buy(nobody, product=product, buyer="ann", key="k1")
    assert books() == (0, 1)


def test_lost_database_after_a_refusal_is_answered_ask_again(
    client: redis.Redis,
) -> None:
    """The query that looks for an earlier order fails as any other may."""

    def lost(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("SELECT") and "buyer" in sql:
            raise OperationalError("server closed the connection unexpectedly")
        return execute(sql, *rest)

    product = on_sale(0)
    with connection.execute_wrapper(lost), pytest.raises(checkout.TryAgain):
        checkout.buy(client, product=product, buyer="ann", key="k1")


def test_inside_another_transaction_it_refuses_to_sell(buy: Buy) -> None:
    product = on_sale(1)
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        buy(product=product, buyer="ann", key="k1")
    assert books() == (0, 1)


# --- two buyers, every statement of the one before the other comes in ---------------------------

STATEMENTS = {
    "checkout": ("UPDATE product", "SELECT", "UPDATE product", "INSERT order"),
    "no_lock": ("UPDATE product", "INSERT order"),
}


@pytest.mark.parametrize(
    ("module", "steps"),
    [(module, n) for module, names in STATEMENTS.items() for n in range(1, len(names) + 1)],
)
def test_one_buyer_gets_the_unit_in_every_schedule(
    module: str, steps: int, client: redis.Redis
) -> None:
    """Wherever the first buyer is when the second one comes."""
    product = on_sale(1)
    buy: Buy = no_lock.buy if module == "no_lock" else partial(checkout.buy, client)
    ann = stepped(partial(buy, product=product, buyer="ann", key="k1"))
    bob = stepped(partial(buy, product=product, buyer="bob", key="k2"))
    with Interleaving() as run:
        a = run.enter("A", ann)
        for statement in STATEMENTS[module][:steps]:
            a.run_to(statement)
        b = run.enter("B", bob)
        for _ in range(5):  # as far as it comes: to the lock, or to the row that A has
            if not b.wait_until_settled(0.2) or b.waits_at is None:
                break
            b.resume()
        errors = [type(error).__name__ for error in map(error_of, (a, b)) if error]
    assert errors == ["SoldOut"]
    assert books() == (1, 0)


def error_of(actor: StoppingActor) -> Exception | None:
    try:
        actor.finish()
    except Exception as error:
        return error
    return None


def test_unguarded_schedule_sells_one_unit_twice() -> None:
    """The code has neither a lock nor a condition."""
    product = on_sale(1)
    ann = stepped(partial(plain, product=product, buyer="ann", key="k1"))
    bob = stepped(partial(plain, product=product, buyer="bob", key="k2"))
    with Interleaving() as run:
        a = run.enter("A", ann).run_to("UPDATE product")
        b = run.enter("B", bob).run_to("UPDATE product")
        a.finish()
        b.finish()
    assert books() == (2, 0)


# --- a pause ------------------------------------------------------------------------------------


def paused_past_its_ttl(product: int, client: redis.Redis) -> str:
    """Return the answer to a holder that was stopped before its claim until a rival had bought."""
    with Child("checkout", product, ttl=0.5) as ann:
        ann.ask(name="ann")
        assert ann.hears() == "stopped"
        os.kill(ann.process.pid, signal.SIGSTOP)
        key = f"lock:{{product:{product}}}"
        assert client.exists(key), "there is a lock to lose"
        eventually(lambda: not client.exists(key), what="the lock ended with its holder stopped")
        checkout.buy(client, product=product, buyer="bob", key="bob")
        os.kill(ann.process.pid, signal.SIGCONT)
        ann.ask()
        return str(ann.hears())


def test_holder_that_was_paused_past_its_ttl_is_fenced_off(client: redis.Redis) -> None:
    assert paused_past_its_ttl(on_sale(2), client) == "TryAgain"
    assert books() == (1, 1)


def test_without_its_fence_the_paused_holder_would_have_sold(client: redis.Redis) -> None:
    """The pause is long enough to matter: with the fence taken back, the same holder sells."""
    product = on_sale(2)
    bought = checkout.buy

    def and_forget_the_fence(*given: object, **more: object) -> Order:
        order = bought(*given, **more)  # type: ignore[arg-type]
        Product.objects.update(fence=0)
        return order

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkout, "buy", and_forget_the_fence)
        assert paused_past_its_ttl(product, client).startswith("order ")


# --- a rush -------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_rush_from_two_processes_sells_the_stock_exactly(module: str) -> None:
    product = on_sale(20)
    with Child(module, product) as one, Child(module, product) as other:
        one.ask(buyers=30)
        other.ask(buyers=30)
        outcomes = [*one.hears(), *other.hears()]
    assert outcomes.count("SoldOut") == 40
    assert len(set(outcomes) - {"SoldOut"}) == 20
    assert books() == (20, 0)
