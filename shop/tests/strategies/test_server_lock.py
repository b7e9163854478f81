"""The setting SHOP_LOCK: the strategy of the shop, except in a demo (SHOP_DEMO).

In a demo each request chooses its strategy by the field `lock`. Otherwise SHOP_LOCK must be a sound
strategy (`sound` in shop/sale/strategy.py).
"""

import os

import pytest
from pytest_django import Settings

from shop.strategies import STRATEGIES
from shop.tests.node import run_python
from shop.tests.ops.test_checks import list_check_ids
from shop.tests.purchases import (
    assert_refused,
    buy,
    committed,
    count_orders_and_stock,
    open_sale,
    post_buy,
    rolled_back,
)

SOUND_STRATEGIES = [name for name, strategy in STRATEGIES.items() if strategy.sound]


@committed
@pytest.mark.parametrize("lock", ["redis", "row-lock", "skip-locked"])
def test_request_without_a_lock_uses_the_servers_strategy(lock: str, settings: Settings) -> None:
    """In a demo a request without the field `lock` uses `none`, and SHOP_LOCK has no effect.

    Otherwise the request uses the strategy in SHOP_LOCK, which the field `lock` may repeat.
    """
    settings.SHOP_LOCK = lock
    open_sale(1)
    assert post_buy({"buyer": "eve"}).body["lock"]["name"] == "none"
    settings.SHOP_DEMO = False
    open_sale(2)
    assert post_buy({"buyer": "ada"}).body["lock"]["name"] == lock
    assert post_buy({"buyer": "bob", "lock": lock}).body["lock"]["name"] == lock


@rolled_back
@pytest.mark.parametrize("lock", ["none", ""])
def test_lock_other_than_the_servers_is_refused(lock: str, settings: Settings) -> None:
    """Except in a demo, the field `lock` must be left out or be the same as SHOP_LOCK (`redis`)."""
    settings.SHOP_DEMO = False
    open_sale(1)
    message = "the server chooses the lock: leave `lock` out, or send the server's"
    assert_refused(buy(lock=lock), 400, message, "redis")
    assert count_orders_and_stock() == (0, 1)


@committed
def test_key_is_replayed_after_the_strategy_changed(settings: Settings) -> None:
    """A repeated request is answered with its order, although SHOP_LOCK is now another strategy.

    The request has no field `lock`, so both times it is the same request. A different request with
    the same key is refused (422).
    """
    settings.SHOP_DEMO = False
    open_sale(2)
    first = post_buy({"buyer": "ada"}, key="k1")
    settings.SHOP_LOCK = "row-lock"
    retry = post_buy({"buyer": "ada"}, key="k1")
    assert (first.status, retry.status) == (201, 200)
    assert retry.body["order"] == first.body["order"]
    assert post_buy({"buyer": "bob"}, key="k1").status == 422
    assert count_orders_and_stock() == (1, 1)


# --- allowed values -----------------------------------------------------------------------------


@rolled_back
def test_unsound_server_lock_is_an_error(settings: Settings) -> None:
    """Except in a demo, a SHOP_LOCK that is not a sound strategy fails the system check.

    A strategy is sound if no known fault of the load test makes it oversell or blocks its buyers.
    """
    for lock in (*STRATEGIES, "", "Redis"):  # the last two are not names of strategies
        settings.SHOP_LOCK = lock
        settings.SHOP_DEMO = True
        assert list_check_ids() == []  # in a demo each request chooses its strategy
        settings.SHOP_DEMO = False
        if lock in SOUND_STRATEGIES:
            expected_ids = []
        elif lock == "reserve":
            expected_ids = ["shop.W012"]  # it may lose orders, but never oversells
        else:
            expected_ids = ["shop.E012"]
        assert list_check_ids() == expected_ids


def test_node_with_an_unsound_lock_does_not_start() -> None:
    """gunicorn exits if SHOP_LOCK is not sound: Django's checks would stop only manage.py."""
    command = ("-m", "gunicorn", "-c", "python:shop.gunicorn_conf", "--bind", "127.0.0.1:0")
    servers = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
    completed = run_python(*command, SHOP_LOCK="none", **servers)
    assert completed.returncode != 0
    assert "SHOP_LOCK is 'none'" in completed.stderr
    # The message goes on with the other sound strategies.
    assert f"Set SHOP_LOCK to one of {', '.join(SOUND_STRATEGIES[:4])}" in completed.stderr
