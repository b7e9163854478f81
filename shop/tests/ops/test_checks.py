"""Every system check fires on the bad setting, says what to do, and is silent on the good one."""

from typing import Any

import pytest
from django.conf import settings as live
from django.core.checks import run_checks
from pytest_django import Settings

from shop.ops.postgres import REPLY_TIMEOUT_SECONDS
from shop.tests.purchases import rolled_back

pytestmark = rolled_back


def ids(*, deploy: bool = False) -> list[str]:
    """The shop's own messages that `manage.py check [--deploy]` would show."""
    messages = run_checks(include_deployment_checks=deploy, databases=["default"])
    shown = [message for message in messages if str(message.id).startswith("shop.")]
    assert all(message.hint for message in shown), "every message says what to do"
    return sorted(message.id for message in shown if message.id)  # Django keeps them in a set


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("SHOP_LOCK_TTL", 0.0, "shop.E006"),
        ("SHOP_TOKEN_TTL", -1.0, "shop.E006"),
        ("SHOP_LOCK_WAIT", float("nan"), "shop.E006"),
        ("SHOP_MAX_WAITING", -1, "shop.E020"),
        ("SHOP_LOCK_TTL", 7.9, "shop.W001"),
        ("SHOP_LOCK_TTL", 8.0, "shop.W001"),
    ],
)
def test_a_number_that_would_sell_nothing_or_twice_is_named(
    name: str, value: float, shown: str, settings: Settings
) -> None:
    setattr(settings, name, value)
    assert shown in ids()


@pytest.mark.parametrize(
    ("purchases", "found"), [(0, []), (1, []), (92, []), (93, ["shop.W020"]), (-1, ["shop.E020"])]
)
def test_bad_number_of_purchases_is_reported(
    purchases: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that leaves no thread to pages is a warning, a negative one an error."""
    monkeypatch.setattr(live, "SHOP_MAX_PURCHASES", purchases)
    monkeypatch.setattr(live, "WEB_THREADS", 100)
    assert ids() == found
    monkeypatch.setenv("WEB_SERVER", "asgi")  # where buyers wait without a thread
    assert ids() == [one for one in found if one != "shop.W020"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("ENGINE", "django.db.backends.sqlite3", "shop.E001"),
        ("ENGINE", "", "shop.E001"),
        ("ATOMIC_REQUESTS", True, "shop.E002"),
    ],
)
def test_another_database_than_postgresql_and_atomic_requests_are_errors(
    name: str, value: object, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(live.DATABASES["default"], name, value)
    assert ids() == [shown]


@pytest.mark.parametrize(
    ("default", "locks", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0", ["shop.E003"]),
        ("redis://localhost:6379/0", "redis://localhost", ["shop.E003"]),
        ("redis://localhost:6379/1", "redis://localhost/5?db=1", ["shop.E003"]),
        ("redis://:one@localhost/0", "redis://:one@localhost:6379", ["shop.E003"]),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0", ["shop.E003"]),
        ("redis://localhost:6379/0", "redis://localhost:6379/1", []),
        ("redis://localhost:6379/0", "redis://localhost:6380/0", []),
        ("redis://localhost/0", "redis://elsewhere/0", []),
        ("unix:///run/redis.sock?db=0", "unix:///run/redis.sock?db=1", []),
        ("http://localhost", "redis://localhost/1", ["shop.E005"]),
    ],
)
def test_locks_in_the_caches_database_are_an_error_however_it_is_spelled(
    default: str, locks: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(live.CACHES["default"], "LOCATION", default)
    monkeypatch.setitem(live.CACHES["locks"], "LOCATION", locks)
    assert ids() == shown


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
def test_longest_hold_is_between_statement_and_wait(
    ttl: float, most: float, wait: float, shown: list[str], settings: Settings
) -> None:
    """A holder that hangs outlasts a statement, and ends before the buyers give up."""
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


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("ALLOWED_HOSTS", ["shop.example.com", "*"], ["shop.E008"]),
        ("ALLOWED_HOSTS", ["."], ["shop.E008"]),
        ("SHOP_RESTOCK_TOKEN", "", []),
        ("SHOP_RESTOCK_TOKEN", "t" * 23, ["shop.E010"]),
        ("SHOP_RESTOCK_TOKEN", "t" * 24, []),
        ("METRICS_TOKEN", "t", ["shop.E010"]),
    ],
)
def test_every_host_and_a_short_token_are_errors_in_production(
    name: str, value: object, shown: list[str], production: Settings
) -> None:
    setattr(production, name, value)
    assert ids(deploy=True) == shown


def test_sentinels_take_the_place_of_the_redis_url(production: Settings) -> None:
    production.MISSING = ["REDIS_URL"]
    assert ids(deploy=True) == ["shop.E007"]
    production.REDIS_SENTINELS = [("sentinel", 26379)]
    assert ids(deploy=True) == []


def test_timeouts_are_ordered() -> None:
    """In this order a stuck buyer cannot outlive its lock."""
    timeouts: dict[str, Any] = live.DB_TIMEOUTS_MS
    assert (
        timeouts["idle_in_transaction_session_timeout"]
        < timeouts["lock_timeout"]
        < timeouts["statement_timeout"]
        < REPLY_TIMEOUT_SECONDS * 1000
        < live.SHOP_LOCK_TTL * 1000
    )
    assert timeouts["idle_in_transaction_session_timeout"] > live.SHOP_LONGEST_HOLD_MS
