"""Every system check fires on the bad setting, says what to do, and is silent on the good one."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as live
from django.core.checks import run_checks
from pytest_django import Settings

from shop.ops.postgres import REPLY_TIMEOUT
from shop.ops.redis import locks_client
from shop.tests.till import rolled_back

pytestmark = rolled_back


def ids(*, deploy: bool = False) -> list[str]:
    """The shop's own messages that `manage.py check [--deploy]` would show."""
    messages = run_checks(include_deployment_checks=deploy, databases=["default"])
    shown = [message for message in messages if str(message.id).startswith("shop.")]
    assert all(message.hint for message in shown), "every message says what to do"
    return sorted(message.id for message in shown if message.id)  # Django keeps them in a set


def set_urls(monkeypatch: pytest.MonkeyPatch, default: str, locks: str) -> None:
    monkeypatch.setitem(live.CACHES["default"], "LOCATION", default)
    monkeypatch.setitem(live.CACHES["locks"], "LOCATION", locks)


def test_the_settings_as_they_are_pass_every_check() -> None:
    assert ids() == []


@pytest.mark.parametrize("name", ["SHOP_LOCK_TTL", "SHOP_TOKEN_TTL", "SHOP_LOCK_WAIT"])
@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_timeout_of_zero_is_an_error(
    name: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, name, seconds)
    assert "shop.E006" in ids()


@pytest.mark.parametrize(
    ("purchases", "found"),
    [(0, []), (1, []), (92, []), (93, ["shop.W020"]), (-1, ["shop.E020"])],
)
def test_purchases_that_leave_no_thread_to_pages_are_a_warning_and_a_negative_number_an_error(
    purchases: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SHOP_MAX_PURCHASES", purchases)
    monkeypatch.setattr(live, "WEB_THREADS", 100)
    assert ids() == found
    monkeypatch.setenv("WEB_SERVER", "asgi")  # where buyers wait without a thread
    assert ids() == [one for one in found if one != "shop.W020"]


@pytest.mark.parametrize("engine", ["django.db.backends.sqlite3", "django.db.backends.mysql", ""])
def test_a_database_other_than_postgresql_is_an_error(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(live.DATABASES["default"], "ENGINE", engine)
    assert ids() == ["shop.E001"]


def test_atomic_requests_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(live.DATABASES["default"], "ATOMIC_REQUESTS", True)
    assert ids() == ["shop.E002"]


@pytest.mark.parametrize(
    ("default", "locks", "same"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0", True),
        ("redis://localhost:6379/0", "redis://localhost", True),
        ("redis://localhost:6379/1", "redis://localhost/5?db=1", True),
        ("redis://:one@localhost/0", "redis://:one@localhost:6379", True),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0", True),
        ("redis://localhost:6379/0", "redis://localhost:6379/1", False),
        ("redis://localhost:6379/0", "redis://localhost:6380/0", False),
        ("redis://localhost/0", "redis://elsewhere/0", False),
        ("unix:///run/redis.sock?db=0", "unix:///run/redis.sock?db=1", False),
    ],
)
def test_locks_in_the_caches_database_are_an_error_however_it_is_spelled(
    default: str, locks: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_urls(monkeypatch, default, locks)
    assert ids() == (["shop.E003"] if same else [])


def test_a_redis_url_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    set_urls(monkeypatch, "http://localhost", "redis://localhost/1")
    assert ids() == ["shop.E005"]


@pytest.mark.parametrize(("ttl", "shown"), [(0.1, True), (7.9, True), (8.0, True), (8.1, False)])
def test_a_statement_that_may_outlive_its_lock_is_a_warning(
    ttl: float, shown: bool, settings: Settings
) -> None:
    settings.SHOP_LOCK_TTL = ttl
    assert ("shop.W001" in ids()) == shown


@pytest.mark.parametrize(
    ("ttl", "most", "wait", "shown"),
    [
        (10.0, 10.0, 30.0, []),
        (10.0, 19.9, 30.0, []),
        (10.0, 20.0, 30.0, ["shop.W011"]),
        (10.0, 9.9, 30.0, ["shop.E011"]),
        (10.0, 0.0, 30.0, ["shop.E011"]),
        (10.0, float("nan"), 30.0, ["shop.E011"]),
        (1.0, 8.0, 30.0, ["shop.W001", "shop.W010"]),
        (1.0, 8.1, 9.1, ["shop.W001", "shop.W011"]),
        (1.0, 8.1, 9.2, ["shop.W001"]),
    ],
)
def test_a_holder_that_hangs_is_bounded_between_a_statement_and_a_buyers_wait(
    ttl: float, most: float, wait: float, shown: list[str], settings: Settings
) -> None:
    settings.SHOP_LOCK_TTL = ttl
    settings.SHOP_LOCK_MAX_HOLD = most
    settings.SHOP_LOCK_WAIT = wait
    assert ids() == shown


@pytest.fixture
def production(settings: Settings) -> Settings:
    """As production sets what the checks of `check --deploy` look at."""
    settings.SHOP_DEMO = False
    settings.MISSING = []
    settings.HTTPS = True
    settings.ALLOWED_HOSTS = ["shop.example.com"]
    return settings


def test_a_demo_is_an_error_in_production_alone(settings: Settings) -> None:
    assert settings.SHOP_DEMO
    assert ids() == []
    assert ids(deploy=True) == ["shop.E004"]


@pytest.mark.parametrize("hosts", [["*"], ["shop.example.com", "*"], ["."]])
def test_a_shop_that_answers_to_every_host_is_an_error(
    hosts: list[str], production: Settings
) -> None:
    production.ALLOWED_HOSTS = hosts
    assert ids(deploy=True) == ["shop.E008"]


@pytest.mark.parametrize("name", ["SHOP_RESTOCK_TOKEN", "METRICS_TOKEN"])
@pytest.mark.parametrize(
    ("token", "shown"), [("", []), ("t", ["shop.E010"]), ("t" * 23, ["shop.E010"]), ("t" * 24, [])]
)
def test_a_short_token_is_an_error_in_production(
    name: str, token: str, shown: list[str], production: Settings
) -> None:
    setattr(production, name, token)
    assert ids(deploy=True) == shown


def test_sentinels_take_the_place_of_the_redis_url(production: Settings) -> None:
    production.MISSING = ["REDIS_URL"]
    assert ids(deploy=True) == ["shop.E007"]
    production.REDIS_SENTINELS = [("sentinel", 26379)]
    assert ids(deploy=True) == []


def test_the_timeouts_are_in_the_order_that_keeps_a_stuck_buyer_from_outliving_its_lock() -> None:
    timeouts: dict[str, Any] = live.DB_TIMEOUTS_MS
    assert (
        timeouts["idle_in_transaction_session_timeout"]
        < timeouts["lock_timeout"]
        < timeouts["statement_timeout"]
        < REPLY_TIMEOUT * 1000
        < live.SHOP_LOCK_TTL * 1000
    )
    assert timeouts["idle_in_transaction_session_timeout"] > live.SHOP_LONGEST_HOLD_MS


def test_a_redis_that_may_evict_locks_is_warned_of() -> None:
    client = locks_client()
    try:
        for policy in ("volatile-lru", "allkeys-lru"):
            client.config_set("maxmemory-policy", policy)
            assert ids() == []
            assert "shop.W003" in ids(deploy=True)
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    assert "shop.W003" not in ids(deploy=True)
