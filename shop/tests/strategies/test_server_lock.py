"""Without SHOP_DEMO the server chooses the lock, and only a sound one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.conf import settings as live
from pytest_django import Settings

from servers.valkey import Valkey
from shop.models import PurchaseHistory
from shop.strategies import STRATEGIES
from shop.tests.node import Node, node_at
from shop.tests.test_checks import ids
from shop.tests.till import ask, books, buy, committed, open_sale, rolled_back

BUYERS, UNITS = 60, 20
SOUND = [name for name, strategy in STRATEGIES.items() if strategy.sound]


@pytest.fixture(scope="module")
def production(folder: Path, valkey: Valkey) -> Iterator[Node]:
    """A node without SHOP_DEMO, and with nothing said about its lock."""
    with node_at(
        folder / "production.log",
        valkey=valkey,
        SHOP_DEMO="0",
        WEB_THREADS=str(BUYERS + live.SPARE_THREADS),
    ) as node:
        yield node


def rush(node: Node, named: dict[str, str]) -> Counter[tuple[int, str]]:
    """What BUYERS at once are answered: status and outcome."""

    def one(number: int) -> tuple[int, str]:
        body = json.dumps({"buyer": f"b{number}", **named}).encode()
        status, answer = node.ask("POST", "/buy", body)
        return status, answer["outcome"]

    with ThreadPoolExecutor(BUYERS) as buyers:
        return Counter(buyers.map(one, range(BUYERS)))


@pytest.mark.parametrize("lock", [None, "redis", "none", "row-lock"])
def test_whatever_lock_a_rush_names_it_sells_what_is_there_or_nothing(
    production: Node, lock: str | None
) -> None:
    """With the buyer's choice, and `none` for those who make none, 60 buyers got 60 units."""
    sale = production.restock(UNITS)
    answers = rush(production, {} if lock is None else {"lock": lock})
    _, report = production.get(f"/sales/{sale}")
    if lock in (None, "redis"):
        assert answers == {(201, "sold"): UNITS, (409, "sold_out"): BUYERS - UNITS}
        assert (report["orders"], report["lost_updates"]) == (UNITS, 0)
    else:
        assert answers == {(400, "error"): BUYERS}
        assert report["orders"] == 0


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
    for sound in SOUND:
        settings.SHOP_LOCK = sound
        assert ids() == []


def test_a_node_with_an_unsound_lock_does_not_start(production: Node) -> None:
    """A worker that served would sell under it: a check stops only manage.py."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gunicorn", "-c", "python:shop.gunicorn_conf"),
            *("--bind", "127.0.0.1:0"),
        ],
        cwd=live.BASE_DIR,
        env={**production.environment, "SHOP_LOCK": "none"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert "SHOP_LOCK is 'none'" in done.stderr
    assert "Set SHOP_LOCK to one of redis, one-file, advisory" in done.stderr
