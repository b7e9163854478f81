"""Redis or PostgreSQL away: 503 `unavailable` and nothing sold, or `unknown` at the commit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import redis

from shop.ops.redis import locks_client
from shop.sale.points import installed
from shop.strategies import STRATEGIES
from shop.tests.database import ReplyCutter, database_at, kill_this_threads_backend
from shop.tests.outage import Outage
from shop.tests.till import (
    LOCKED,
    assert_asks_to_come_back,
    at,
    books,
    buy,
    committed,
    eventually,
    open_sale,
)

pytestmark = committed

IN_DOUBT = (
    "The connection broke while committing; the order may exist. Ask again with the same key."
)


def needs_a_transaction(lock: str) -> None:
    """Skip a strategy whose purchases have none: its consumer has, see test_settlement.py."""
    if STRATEGIES[lock].deferred:
        pytest.skip("its purchases have no transaction; test_settlement.py has its consumer's")


@pytest.mark.parametrize("lock", LOCKED)
def test_without_redis_a_locked_sale_is_503_unavailable_and_never_unlocked(
    lock: str, redis_outage: Outage
) -> None:
    open_sale(1)
    redis_outage.begin()
    assert_asks_to_come_back(
        buy(lock=lock), "unavailable", "the lock's server does not answer; nothing was sold"
    )
    assert books() == (0, 1)
    assert buy(lock="none").status == 201, "a sale without Redis needs no Redis"
    redis_outage.end()
    assert buy(lock=lock).status == 409, "and it is asked again when it is back"


@pytest.mark.parametrize("lock", LOCKED)
def test_a_redis_that_is_busy_with_a_script_is_503_unavailable(lock: str) -> None:
    open_sale(1)
    client = locks_client()
    client.config_set("busy-reply-threshold", 1)

    def run_forever() -> None:
        with pytest.raises(redis.ResponseError, match="killed by user with SCRIPT KILL"):
            client.eval("while true do end", 0)

    def is_busy() -> bool:
        try:
            client.ping()
        except redis.ResponseError as error:
            return str(error).startswith("BUSY") or "busy" in str(error)
        return False

    script = threading.Thread(target=run_forever)
    script.start()
    try:
        eventually(is_busy, what="Redis is busy")
        answer = buy(lock=lock)
    finally:
        client.script_kill()
        script.join()
        client.config_set("busy-reply-threshold", 5000)
    assert_asks_to_come_back(
        answer, "unavailable", "the lock's server does not answer; nothing was sold"
    )
    assert books() == (0, 1)
    assert buy(lock=lock).status == 201


def test_without_postgresql_a_sale_is_503_unavailable(lock: str, tmp_path: Path) -> None:
    open_sale(1)
    with database_at(tmp_path):  # nobody listens there
        answer = buy(lock=lock)
    assert_asks_to_come_back(
        answer, "unavailable", "the database does not answer; nothing was sold"
    )
    assert books() == (0, 1)
    assert buy(lock=lock).status == 201, "the lock was released"


def test_a_connection_that_breaks_before_the_write_is_503_unavailable(lock: str) -> None:
    needs_a_transaction(lock)
    open_sale(1)
    with installed(at("after_read", kill_this_threads_backend)):
        answer = buy(lock=lock)
    assert_asks_to_come_back(
        answer, "unavailable", "the database does not answer; nothing was sold"
    )
    assert books() == (0, 1)
    assert buy(lock=lock).status == 201


def test_a_connection_that_breaks_at_the_commit_is_503_unknown_and_may_have_sold_nothing(
    lock: str,
) -> None:
    needs_a_transaction(lock)
    open_sale(2)
    with installed(at("before_commit", kill_this_threads_backend)):
        answer = buy(lock=lock, key="k1")
    assert_asks_to_come_back(answer, "unknown", IN_DOUBT)
    assert books() == (0, 2)
    again = buy(lock=lock, key="k1")
    assert (again.status, again.body["replayed"]) == (201, False)
    assert books() == (1, 1)


def test_a_commit_whose_reply_got_lost_is_503_unknown_and_the_same_key_finds_the_order(
    lock: str,
) -> None:
    """Without the key the buyer would ask again and have two units."""
    needs_a_transaction(lock)
    open_sale(2, lock=lock)
    with ReplyCutter() as proxy, database_at(proxy.folder):
        answer = buy(lock=lock, key="k1")
    assert proxy.cut == 1, "the fault did not fire"
    assert_asks_to_come_back(answer, "unknown", IN_DOUBT)
    assert books() == (1, 1)
    again = buy(lock=lock, key="k1")
    assert (again.status, again.body["replayed"]) == (200, True)
    assert books() == (1, 1)
    without_a_key = buy(lock=lock)
    assert without_a_key.status == 201
    assert books() == (2, 0)
