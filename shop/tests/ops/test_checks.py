"""Django's system checks of the shop's settings: a bad setting is reported, a good one is not.

The ids of the messages (shop.E001, shop.W001, ...) are defined in shop/checks.py.
"""

import pytest
from django.core.checks import run_checks
from pytest_django import Settings

from shop.ops.postgres import REPLY_TIMEOUT_SECONDS
from shop.tests.purchases import rolled_back

pytestmark = rolled_back


def list_check_ids(*, deploy: bool = False) -> list[str]:
    """Return the sorted ids of the messages that `manage.py check` prints for the shop.

    deploy  whether to include the checks of `manage.py check --deploy`
    """
    messages = [
        message
        for message in run_checks(include_deployment_checks=deploy, databases=["default"])
        if message.id and message.id.startswith("shop.")
    ]
    assert all(message.hint for message in messages), "every message should have a hint"
    return sorted(str(message.id) for message in messages)


@pytest.mark.parametrize(
    ("name", "value", "check_id"),
    [
        ("SHOP_LOCK_TTL", 0.0, "shop.E006"),
        ("SHOP_TOKEN_TTL", -1.0, "shop.E006"),
        ("SHOP_LOCK_WAIT", float("nan"), "shop.E006"),
        ("SHOP_MAX_WAITING", -1, "shop.E020"),
        # a ttl should be longer than the statement_timeout, 8 s
        ("SHOP_LOCK_TTL", 7.9, "shop.W001"),
        ("SHOP_LOCK_TTL", 8.0, "shop.W001"),
    ],
)
def test_invalid_or_too_small_number_is_reported(
    name: str, value: float, check_id: str, settings: Settings
) -> None:
    """E006: not a positive number of seconds. E020: a negative number of buyers. W001: a short ttl.

    With such a ttl, a lock may expire before PostgreSQL cancels its holder's statement, after 8 s.
    """
    setattr(settings, name, value)
    assert check_id in list_check_ids()


@pytest.mark.parametrize(
    ("purchases", "expected_ids"),
    [(0, []), (1, []), (92, []), (93, ["shop.W020"]), (-1, ["shop.E020"])],
)
def test_bad_limit_of_purchases_is_reported(
    purchases: int, expected_ids: list[str], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A negative limit is an error (E020).

    W020 warns of a limit that leaves fewer than 8 of the 100 threads for other pages
    (SPARE_THREADS).
    """
    settings.SHOP_MAX_PURCHASES = purchases
    settings.WEB_THREADS = 100
    assert list_check_ids() == expected_ids
    monkeypatch.setenv("WEB_SERVER", "asgi")  # on an asgi node buyers wait without a thread
    assert list_check_ids() == [check_id for check_id in expected_ids if check_id != "shop.W020"]


@pytest.mark.parametrize(
    ("name", "value", "check_id"),
    [
        ("ENGINE", "django.db.backends.oracle", "shop.E001"),
        ("ENGINE", "", "shop.E001"),
        ("ATOMIC_REQUESTS", True, "shop.E002"),
    ],
)
def test_wrong_engine_or_atomic_requests_is_an_error(
    name: str, value: object, check_id: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E001: the database is not PostgreSQL. E002: ATOMIC_REQUESTS is on."""
    monkeypatch.setitem(settings.DATABASES["default"], name, value)
    assert list_check_ids() == [check_id]


@pytest.mark.parametrize("engine", ["mysql", "sqlite3"])
def test_demo_databases_are_refused_outside_a_demo(
    engine: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite and MySQL may be used only in a demo."""
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", f"django.db.backends.{engine}")
    settings.SHOP_DEMO = True
    assert "shop.E001" not in list_check_ids()
    settings.SHOP_DEMO = False
    assert "shop.E001" in list_check_ids()


@pytest.mark.parametrize(
    ("cache_url", "locks_url", "expected_ids"),
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
def test_one_database_for_locks_and_cache_is_an_error(
    cache_url: str,
    locks_url: str,
    expected_ids: list[str],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E003: two URLs of the same database, even if they differ in text. E005: not a Redis URL."""
    monkeypatch.setitem(settings.CACHES["default"], "LOCATION", cache_url)
    monkeypatch.setitem(settings.CACHES["locks"], "LOCATION", locks_url)
    assert list_check_ids() == expected_ids


@pytest.mark.parametrize(
    ("ttl", "max_hold", "wait", "expected_ids"),
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
def test_max_hold_outside_its_range_is_reported(
    ttl: float, max_hold: float, wait: float, expected_ids: list[str], settings: Settings
) -> None:
    """SHOP_LOCK_MAX_HOLD (max_hold) limits how long the lock of a holder that hangs is renewed.

    It must be longer than a statement may take (8 s, the statement_timeout), and short enough that
    waiting buyers get the lock before they give up. The checks report, in seconds:

    W001  ttl <= 8
    E011  max_hold < ttl, or max_hold is not a number
    W010  max_hold <= 8
    W011  max_hold + ttl >= wait
    """
    settings.SHOP_LOCK_TTL = ttl
    settings.SHOP_LOCK_MAX_HOLD = max_hold
    settings.SHOP_LOCK_WAIT = wait
    assert list_check_ids() == expected_ids


@pytest.fixture
def production(settings: Settings) -> Settings:
    """Settings of a shop in production, for which `manage.py check --deploy` reports nothing."""
    settings.SHOP_DEMO = False
    settings.MISSING_SETTINGS = []
    settings.HTTPS = True
    settings.ALLOWED_HOSTS = ["shop.example.com"]
    return settings


def test_demo_is_an_error_in_production_only(settings: Settings) -> None:
    """E004: SHOP_DEMO is on. Only `manage.py check --deploy` reports it."""
    assert settings.SHOP_DEMO
    assert list_check_ids() == []
    assert list_check_ids(deploy=True) == ["shop.E004"]


@pytest.mark.parametrize(
    ("name", "value", "expected_ids"),
    [
        ("ALLOWED_HOSTS", ["shop.example.com", "*"], ["shop.E008"]),
        ("ALLOWED_HOSTS", ["."], ["shop.E008"]),
        ("SHOP_RESTOCK_TOKEN", "", []),
        ("SHOP_RESTOCK_TOKEN", "t" * 23, ["shop.E010"]),
        ("SHOP_RESTOCK_TOKEN", "t" * 24, []),
        ("METRICS_TOKEN", "t", ["shop.E010"]),
    ],
)
def test_wildcard_host_or_short_token_is_an_error_in_production(
    name: str, value: object, expected_ids: list[str], production: Settings
) -> None:
    """E008: ALLOWED_HOSTS has a wildcard. E010: a token has fewer than 24 characters."""
    setattr(production, name, value)
    assert list_check_ids(deploy=True) == expected_ids


def test_sentinels_replace_the_redis_url(production: Settings) -> None:
    """E007 reports that REDIS_URL is not set, unless REDIS_SENTINELS is set."""
    production.MISSING_SETTINGS = ["REDIS_URL"]
    assert list_check_ids(deploy=True) == ["shop.E007"]
    production.REDIS_SENTINELS = [("sentinel", 26379)]
    assert list_check_ids(deploy=True) == []


def test_timeouts_are_ordered(settings: Settings) -> None:
    """The timeouts increase in the order in which they stop a stuck purchase.

    So PostgreSQL, or else the client, ends the purchase before its lock expires.
    """
    timeouts: dict[str, int] = settings.DB_TIMEOUTS_MS
    assert (
        timeouts["idle_in_transaction_session_timeout"]
        < timeouts["lock_timeout"]
        < timeouts["statement_timeout"]
        < REPLY_TIMEOUT_SECONDS * 1000
        < settings.SHOP_LOCK_TTL * 1000
    )
    assert timeouts["idle_in_transaction_session_timeout"] > settings.SHOP_LONGEST_HOLD_MS
