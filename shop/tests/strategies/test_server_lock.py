"""Without SHOP_DEMO the server chooses the lock, and only a sound one."""

import os

import pytest
from pytest_django import Settings

from shop.strategies import STRATEGIES
from shop.tests.node import run
from shop.tests.ops.test_checks import reported_checks
from shop.tests.purchases import (
    assert_refused,
    buy,
    committed,
    count_orders_and_stock,
    open_sale,
    post_buy,
    rolled_back,
)

SOUND = [name for name, strategy in STRATEGIES.items() if strategy.sound]


@committed
@pytest.mark.parametrize("lock", ["redis", "row-lock", "skip-locked"])
def test_request_without_a_lock_uses_the_servers_strategy(lock: str, settings: Settings) -> None:
    """In a demo the buyer's choice has priority."""
    settings.SHOP_LOCK = lock
    open_sale(1)
    assert post_buy({"buyer": "eve"}).body["lock"]["name"] == "none"
    settings.SHOP_DEMO = False
    open_sale(2)
    assert post_buy({"buyer": "ada"}).body["lock"]["name"] == lock
    assert post_buy({"buyer": "bob", "lock": lock}).body["lock"]["name"] == lock


@rolled_back
@pytest.mark.parametrize("lock", ["none", ""])
def test_lock_of_the_buyers_choice_is_refused(lock: str, settings: Settings) -> None:
    settings.SHOP_DEMO = False
    open_sale(1)
    message = "the server chooses the lock: leave `lock` out, or send the server's"
    assert_refused(buy(lock=lock), 400, message, "redis")
    assert count_orders_and_stock() == (0, 1)


@committed
def test_key_is_replayed_after_the_strategy_changed(settings: Settings) -> None:
    """The buyer asked for the same as before: the lock is not the buyer's to repeat."""
    settings.SHOP_DEMO = False
    open_sale(2)
    first = post_buy({"buyer": "ada"}, key="k1")
    settings.SHOP_LOCK = "row-lock"
    again = post_buy({"buyer": "ada"}, key="k1")
    assert (first.status, again.status) == (201, 200)
    assert again.body["order"] == first.body["order"]
    assert post_buy({"buyer": "bob"}, key="k1").status == 422
    assert count_orders_and_stock() == (1, 1)


# --- which locks a server may have --------------------------------------------------------------


@rolled_back
def test_only_a_sound_strategy_may_be_the_servers(settings: Settings) -> None:
    for settings.SHOP_LOCK in (*STRATEGIES, "", "Redis"):
        settings.SHOP_DEMO = True
        assert reported_checks() == []  # a demo's buyers choose their own
        settings.SHOP_DEMO = False
        warned = ["shop.W012"] if settings.SHOP_LOCK == "reserve" else ["shop.E012"]
        assert reported_checks() == ([] if settings.SHOP_LOCK in SOUND else warned)


def test_node_with_an_unsound_lock_does_not_start() -> None:
    """A worker that served would sell under it: a check stops only manage.py."""
    command = ("-m", "gunicorn", "-c", "python:shop.gunicorn_conf", "--bind", "127.0.0.1:0")
    servers = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
    done = run(*command, SHOP_LOCK="none", **servers)
    assert done.returncode != 0
    assert "SHOP_LOCK is 'none'" in done.stderr
    assert f"Set SHOP_LOCK to one of {', '.join(SOUND[:4])}" in done.stderr
