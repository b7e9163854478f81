"""Settings from the environment, each read in a new Python process."""

import json
import secrets
from typing import Any

import pytest

from shop.ops.environment import use_next_redis_database
from shop.tests.node import run_python

PRINT_SETTINGS = """
import json, sys
from shop import settings as s
pool = s.DATABASES["default"].get("OPTIONS", {}).get("pool")
locks = s.CACHES["locks"]["OPTIONS"]["CONNECTION_POOL_KWARGS"]
print(json.dumps({
    "demo": s.SHOP_DEMO, "token": s.SHOP_RESTOCK_TOKEN, "ttl": s.SHOP_LOCK_TTL,
    "max_hold": s.SHOP_LOCK_MAX_HOLD, "token_ttl": s.SHOP_TOKEN_TTL, "wait": s.SHOP_LOCK_WAIT,
    "default": s.CACHES["default"]["LOCATION"], "locks": s.CACHES["locks"]["LOCATION"],
    "retries": locks["retry"].get_retries(), "timeout": locks["socket_timeout"],
    "connect": locks["socket_connect_timeout"], "connections": locks["max_connections"],
    "pool": pool and [pool["min_size"], pool["max_size"]],
    "options": s.DATABASES["default"].get("OPTIONS", {}).get("options"),
    "debug": s.DEBUG, "key": len(s.SECRET_KEY) >= 50, "https": s.SECURE_SSL_REDIRECT,
    "lock": s.SHOP_LOCK, "proxy": s.SECURE_PROXY_SSL_HEADER is not None,
    "starts servers": "servers.embedded" in sys.modules,  # a worker must never own them
}))
"""


def read_settings(**environment: str) -> dict[str, Any]:
    completed = run_python("-c", PRINT_SETTINGS, **environment)
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout))


DEFAULTS = {
    "demo": False,
    "token": "",
    "debug": False,
    "key": True,
    "https": False,
    "proxy": False,
    "lock": "redis",
    "starts servers": False,
    "ttl": 10.0,
    "max_hold": 10.0,
    "token_ttl": 3.0,
    "wait": 30.0,
    "default": "redis://127.0.0.1:6379/0",
    "locks": "redis://127.0.0.1:6379/1",
    "retries": 0,
    "timeout": 2.0,
    "connect": 2.0,
    "connections": 250,
    "pool": None,
    "options": None,
}


def test_defaults_allow_no_faults_and_no_restocks() -> None:
    assert read_settings() == DEFAULTS


def test_environment_sets_every_value() -> None:
    timeouts = "-c idle_in_transaction_session_timeout=6000 -c lock_timeout=7000"
    values = read_settings(
        SHOP_DEMO="1",
        SHOP_RESTOCK_TOKEN="t",
        SHOP_LOCK_TTL="1.5",
        DEBUG="1",
        SHOP_LOCK_MAX_HOLD="4.5",
        SHOP_TOKEN_TTL="2.5",
        SHOP_LOCK_WAIT="0.5",
        DATABASE_URL="postgresql://u:p@db:5433/shop",
        SHOP_DB_POOL="7",
        HTTPS="1",
        REDIS_URL="redis://cache:6379/4",
        WEB_THREADS="40",
        SHOP_REDIS_TIMEOUT="0.25",
        SECRET_KEY="k" * 50,
        SHOP_BEHIND_PROXY="1",
        SHOP_LOCK="row-lock",
    )
    assert values == {
        "demo": True,
        "token": "t",
        "debug": True,
        "key": True,
        "https": True,
        "proxy": True,
        "lock": "row-lock",
        "starts servers": False,
        "ttl": 1.5,
        "max_hold": 4.5,
        "token_ttl": 2.5,
        "wait": 0.5,
        "default": "redis://cache:6379/4",
        "locks": "redis://cache:6379/5",
        "retries": 0,
        "timeout": 0.25,
        "connect": 0.25,
        "connections": 130,
        "pool": [7, 7],
        "options": f"{timeouts} -c statement_timeout=8000",
    }


@pytest.mark.parametrize(
    ("url", "locks_url"),
    [
        ("redis://host", "redis://host/1"),
        ("rediss://u:p@host:1/9", "rediss://u:p@host:1/10"),
        ("redis://host?db=2", "redis://host?db=3"),
        ("redis://host/7?db=2&timeout=1", "redis://host/7?db=3&timeout=1"),
        ("unix:///run/redis.sock?db=3", "unix:///run/redis.sock?db=4"),
    ],
)
def test_locks_use_the_database_after_the_caches(url: str, locks_url: str) -> None:
    assert use_next_redis_database(url) == locks_url


def test_check_without_postgresql_prints_a_hint() -> None:
    """It prints no traceback."""
    completed = run_python("-m", "django", "check", "--no-color", DATABASE_URL="sqlite:///:memory:")
    assert completed.returncode == 1
    assert "?: (shop.E001) The database is django.db.backends.sqlite3, not Pos" in completed.stderr
    assert "\tHINT: Set DATABASE_URL=postgresql://..., or use manage.py" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_check_stack_without_urls_prints_no_traceback() -> None:
    completed = run_python("-m", "django", "check_stack", "--no-color", "--skip-checks")
    assert completed.returncode == 1
    assert "FAIL PostgreSQL: settings.DATABASES is improperly configured." in completed.stdout
    assert completed.stderr.startswith("CommandError: not ready: PostgreSQL, migrations, ")
    assert "Traceback" not in completed.stderr


# --- check --deploy -----------------------------------------------------------------------------

PRODUCTION = {
    "SECRET_KEY": secrets.token_urlsafe(64),
    "ALLOWED_HOSTS": "shop.example.com",
    "DATABASE_URL": "postgresql://oversold_app@127.0.0.1:1/oversold?sslmode=verify-full",
    "REDIS_URL": "rediss://127.0.0.1:1/0",
    "REDIS_PASSWORD": secrets.token_urlsafe(32),
    "SHOP_RESTOCK_TOKEN": secrets.token_urlsafe(32),
    "SHOP_BEHIND_PROXY": "1",
    "HTTPS": "1",
    "HSTS_SECONDS": "31536000",
}
CHECK = ("-m", "django", "check", "--deploy", "--fail-level", "WARNING", "--no-color")


def test_missing_required_setting_is_an_error_with_a_hint() -> None:
    completed = run_python("-m", "django", "check", "--deploy", "--no-color")
    assert completed.returncode == 1, "an error, not a warning"
    for name in ("SECRET_KEY", "ALLOWED_HOSTS", "DATABASE_URL", "REDIS_URL", "HTTPS"):
        check = "shop.E009" if name == "HTTPS" else "shop.E007"
        message, _, rest = completed.stderr.partition(f"({check}) {name} ")[2].partition("\n")
        assert message, name
        assert rest.startswith("\tHINT: "), name


def test_embedded_servers_do_not_count_in_production() -> None:
    completed = run_python(*CHECK, **PRODUCTION, SHOP_EMBEDDED="DATABASE_URL,REDIS_URL")
    assert completed.returncode == 1
    assert "(shop.E007) DATABASE_URL is not set" in completed.stderr
    assert "(shop.E007) REDIS_URL is not set" in completed.stderr


SHOW_URLS = "from shop import settings as s; print(s.REDIS_URL, s.REDIS_LOCKS_URL, *s.REDLOCK_URLS)"


def test_redis_password_from_a_file_goes_into_every_url() -> None:
    """A URL that has a password keeps it."""
    completed = run_python(
        "-c",
        SHOW_URLS,
        REDIS_URL="redis://redis:6379/0",
        REDLOCK_URLS="redis://one,redis://me:mine@two",
        REDIS_USER="shop",
        REDIS_PASSWORD="p@ss/word",
    )
    login = "shop:p%40ss%2Fword"
    assert completed.stdout.split() == [
        f"redis://{login}@redis:6379/0",
        f"redis://{login}@redis:6379/1",
        f"redis://{login}@one",
        "redis://me:mine@two",
    ]
