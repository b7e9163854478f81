"""Settings from environment variables. Each test reads them in a new Python process."""

import json
import re
import secrets
from pathlib import Path
from typing import Any

import pytest

from shop.ops.environment import EnvironmentWithFiles, increase_database_number
from shop.tests.node import run_python

#: Prints the settings that the tests compare.
PRINT_SETTINGS = """
import json, sys
from shop import settings as s
pool = s.DATABASES["default"].get("OPTIONS", {}).get("pool")
locks = s.CACHES["locks"]["OPTIONS"]["CONNECTION_POOL_KWARGS"]
print(json.dumps({
    "demo": s.SHOP_DEMO,
    "restock token": s.SHOP_RESTOCK_TOKEN,
    "debug": s.DEBUG,
    "has long secret key": len(s.SECRET_KEY) >= 50,
    "redirects to HTTPS": s.SECURE_SSL_REDIRECT,
    "trusts a proxy": s.SECURE_PROXY_SSL_HEADER is not None,
    "strategy": s.SHOP_LOCK,
    "starts servers": "servers.embedded" in sys.modules,  # a worker must not start servers
    "lock ttl": s.SHOP_LOCK_TTL,
    "lock max hold": s.SHOP_LOCK_MAX_HOLD,
    "token ttl": s.SHOP_TOKEN_TTL,
    "lock wait": s.SHOP_LOCK_WAIT,
    "cache url": s.CACHES["default"]["LOCATION"],
    "locks url": s.CACHES["locks"]["LOCATION"],
    "redis retries": locks["retry"].get_retries(),
    "redis timeout": locks["socket_timeout"],
    "redis connect timeout": locks["socket_connect_timeout"],
    "redis connections": locks["max_connections"],
    "database pool": pool and [pool["min_size"], pool["max_size"]],
    "database options": s.DATABASES["default"].get("OPTIONS", {}).get("options"),
}))
"""


def read_settings(**environment: str) -> dict[str, Any]:
    """Return the settings that a new process with these environment variables has.

    They are the output of PRINT_SETTINGS.
    """
    completed = run_python("-c", PRINT_SETTINGS, **environment)
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout))


#: The output of PRINT_SETTINGS without environment variables.
DEFAULT_SETTINGS = {
    "demo": False,
    "restock token": "",
    "debug": False,
    "has long secret key": True,
    "redirects to HTTPS": False,
    "trusts a proxy": False,
    "strategy": "redis",
    "starts servers": False,
    "lock ttl": 10.0,
    "lock max hold": 10.0,
    "token ttl": 3.0,
    "lock wait": 30.0,
    "cache url": "redis://127.0.0.1:6379/0",
    "locks url": "redis://127.0.0.1:6379/1",
    "redis retries": 0,
    "redis timeout": 2.0,
    "redis connect timeout": 2.0,
    "redis connections": 250,  # 2 for each of the 100 threads, and 50
    "database pool": None,
    "database options": None,
}


def test_defaults_allow_no_faults_and_no_restocks() -> None:
    """By default the shop is no demo, and has no restock token.

    Faults can be injected only in a demo, and a restock needs the token.
    """
    assert read_settings() == DEFAULT_SETTINGS


def test_environment_sets_every_value() -> None:
    """Each setting follows its environment variable.

    Some settings are derived: the locks' database follows that of the cache, and the number of
    Redis connections follows WEB_THREADS.
    """
    new_settings = read_settings(
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
    assert new_settings == {
        "demo": True,
        "restock token": "t",
        "debug": True,
        "has long secret key": True,
        "redirects to HTTPS": True,
        "trusts a proxy": True,
        "strategy": "row-lock",
        "starts servers": False,
        "lock ttl": 1.5,
        "lock max hold": 4.5,
        "token ttl": 2.5,
        "lock wait": 0.5,
        "cache url": "redis://cache:6379/4",
        "locks url": "redis://cache:6379/5",
        "redis retries": 0,
        "redis timeout": 0.25,
        "redis connect timeout": 0.25,
        "redis connections": 130,  # 2 for each of WEB_THREADS=40, and 50
        "database pool": [7, 7],
        "database options": (
            "-c idle_in_transaction_session_timeout=6000 -c lock_timeout=7000"
            " -c statement_timeout=8000"
        ),
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
def test_locks_use_the_database_after_that_of_the_cache(url: str, locks_url: str) -> None:
    assert increase_database_number(url) == locks_url


def test_check_without_postgresql_prints_a_hint() -> None:
    """The command prints a hint instead of a traceback."""
    completed = run_python("-m", "django", "check", "--no-color", DATABASE_URL="sqlite:///:memory:")
    assert completed.returncode == 1
    message = "The database is django.db.backends.sqlite3, not PostgreSQL"
    assert f"?: (shop.E001) {message}" in completed.stderr
    assert "\tHINT: Set DATABASE_URL=postgresql://..., or use manage.py" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_check_stack_without_urls_prints_no_traceback() -> None:
    completed = run_python("-m", "django", "check_stack", "--no-color", "--skip-checks")
    assert completed.returncode == 1
    assert "FAIL PostgreSQL: settings.DATABASES is improperly configured." in completed.stdout
    assert completed.stderr.startswith("CommandError: not ready: PostgreSQL, migrations, ")
    assert "Traceback" not in completed.stderr


# --- check --deploy -----------------------------------------------------------------------------

#: Environment variables for which `manage.py check --deploy` reports nothing.
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
CHECK_COMMAND = ("-m", "django", "check", "--deploy", "--fail-level", "WARNING", "--no-color")


def test_missing_required_setting_is_an_error_with_a_hint() -> None:
    completed = run_python("-m", "django", "check", "--deploy", "--no-color")
    assert completed.returncode == 1, "an error, not a warning"
    for name in ("SECRET_KEY", "ALLOWED_HOSTS", "DATABASE_URL", "REDIS_URL", "HTTPS"):
        check_id = "shop.E009" if name == "HTTPS" else "shop.E007"
        message_and_hint = rf"\({check_id}\) {name} .+\n\tHINT: "
        assert re.search(message_and_hint, completed.stderr), name


def test_production_requires_urls_despite_embedded_servers() -> None:
    """In production, URLs of servers that a demo or a test has started count as not set.

    A demo or a test lists the variables that it has set to such URLs in SHOP_EMBEDDED.
    """
    completed = run_python(*CHECK_COMMAND, **PRODUCTION, SHOP_EMBEDDED="DATABASE_URL,REDIS_URL")
    assert completed.returncode == 1
    assert "(shop.E007) DATABASE_URL is not set" in completed.stderr
    assert "(shop.E007) REDIS_URL is not set" in completed.stderr


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"word", "word"),
        (b"word\n", "word"),
        (b"word\r\n", "word"),
        (b" word \n", " word "),
        (b"word\n\n", "word\n"),
        (b"", ""),
    ],
)
def test_one_line_break_at_the_end_of_a_secret_file_is_ignored(
    content: bytes, value: str, tmp_path: Path
) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_bytes(content)
    environment = EnvironmentWithFiles({"SOME_SECRET_FILE": str(secret_file)})
    assert environment["SOME_SECRET"] == value


def test_settings_read_secret_files(tmp_path: Path) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_text("t\n")
    new_settings = read_settings(SHOP_RESTOCK_TOKEN_FILE=str(secret_file))
    assert new_settings["restock token"] == "t"


PRINT_URLS = (
    "from shop import settings as s; print(s.REDIS_URL, s.REDIS_LOCKS_URL, *s.REDLOCK_URLS)"
)


def test_redis_login_is_added_to_every_url() -> None:
    """REDIS_USER and REDIS_PASSWORD are added to each Redis URL that has no login."""
    completed = run_python(
        "-c",
        PRINT_URLS,
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
