"""Without SHOP_DEMO the server chooses the lock, and only a sound one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as live
from pytest_django import Settings

from servers.valkey import Valkey
from shop.models import PurchaseHistory
from shop.strategies import STRATEGIES
from shop.tests.node import node_at
from shop.tests.ops.test_checks import ids
from shop.tests.till import ask, books, buy, committed, open_sale, rolled_back

SOUND = [name for name, strategy in STRATEGIES.items() if strategy.sound]


# --- which lock is asked for, and which is taken ------------------------------------------------


@committed
@pytest.mark.parametrize("lock", ["redis", "row-lock", "skip-locked"])
def test_a_request_that_names_none_is_sold_under_the_servers_lock(
    lock: str, settings: Settings
) -> None:
    settings.SHOP_DEMO, settings.SHOP_LOCK = False, lock
    open_sale(3)
    assert ask({"buyer": "ada"}).body["lock"]["name"] == lock
    assert ask({"buyer": "bob", "lock": lock}).body["lock"]["name"] == lock
    assert set(PurchaseHistory.objects.values_list("lock", flat=True)) == {lock}


@rolled_back
@pytest.mark.parametrize("lock", ["none", ""])
def test_another_lock_than_the_servers_is_refused_with_the_one_that_is_allowed(
    lock: str, settings: Settings
) -> None:
    settings.SHOP_DEMO = False
    open_sale(1)
    answer = buy(lock=lock)
    assert answer.status == 400
    assert answer.body == {
        "outcome": "error",
        "error": "the server chooses the lock: leave it out, or name its own",
        "allowed": ["redis"],
    }
    assert books() == (0, 1)


@committed
def test_in_a_demo_the_buyer_chooses_whatever_the_server_would(settings: Settings) -> None:
    settings.SHOP_LOCK = "row-lock"
    open_sale(2)
    assert ask({"buyer": "ada"}).body["lock"]["name"] == "none"
    assert ask({"buyer": "bob", "lock": "token"}).body["lock"]["name"] == "token"


@committed
def test_a_key_is_replayed_after_the_server_was_given_another_lock(settings: Settings) -> None:
    """The buyer asked for the same as before: the lock is not the buyer's to repeat."""
    settings.SHOP_DEMO = False
    open_sale(2)
    first = ask({"buyer": "ada"}, key="k1")
    settings.SHOP_LOCK = "row-lock"
    again = ask({"buyer": "ada"}, key="k1")
    assert (first.status, again.status) == (201, 200)
    assert again.body["order"] == first.body["order"]
    assert ask({"buyer": "bob"}, key="k1").status == 422
    assert books() == (1, 1)


# --- which locks a server may have --------------------------------------------------------------


@rolled_back
@pytest.mark.parametrize("lock", ["none", "zookeeper", "", "Redis"])
def test_only_a_sound_lock_may_be_the_servers(lock: str, settings: Settings) -> None:
    settings.SHOP_LOCK = lock
    assert ids() == []  # a demo's buyers choose their own
    settings.SHOP_DEMO = False
    assert ids() == ["shop.E012"]


@rolled_back
def test_every_sound_lock_may_be_the_servers(settings: Settings) -> None:
    settings.SHOP_DEMO = False
    for settings.SHOP_LOCK in SOUND:
        assert ids() == []


def test_a_node_with_an_unsound_lock_does_not_start(folder: Path, valkey: Valkey) -> None:
    """A worker that served would sell under it: a check stops only manage.py."""
    node = node_at(folder / "never", valkey=valkey, SHOP_DEMO="0", SHOP_LOCK="none")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gunicorn", "-c", "python:shop.gunicorn_conf"),
            *("--bind", "127.0.0.1:0"),
        ],
        cwd=live.BASE_DIR,
        env=node.environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert "SHOP_LOCK is 'none'" in done.stderr
    assert "Set SHOP_LOCK to one of redis, one-file, advisory" in done.stderr
