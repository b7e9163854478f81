"""Health checks: GET /healthz shows that the process answers, GET /readyz that it can sell."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings

from servers.mariadb import CLIENT_MISSING
from shop.ops import health
from shop.tests.database import connect_django_to
from shop.tests.node import BEARER, run_python
from shop.tests.outage import Outage
from shop.tests.purchases import JsonReply, committed, parse_reply, rolled_back

PROBE_PATHS = ["/healthz", "/readyz"]


def list_unready_parts(answer: JsonReply) -> list[str]:
    """Return the names of the parts (such as `Redis (locks)`) that /readyz reports as not ready."""
    return [part["name"] for part in answer.body["parts"] if not part["ok"]]


def test_healthz_touches_no_backend(redis_outage: Outage) -> None:
    """/healthz answers 200 without a request to Redis or PostgreSQL.

    Redis is down during this test. The test has no django_db mark, so pytest-django makes every
    query to PostgreSQL fail.
    """
    redis_outage.begin()
    answer = parse_reply(Client().get("/healthz"))
    assert (answer.status, answer.body) == (200, {"status": "ok"})


@rolled_back
def test_readyz_hides_details_without_the_token(settings: Settings) -> None:
    """The details contain versions, and the host and user of a server that does not answer."""
    settings.SHOP_DEMO = False
    answer = parse_reply(Client().get("/readyz"))
    assert (answer.status, answer.body["status"]) == (200, "ready")
    public_parts = answer.body["parts"]
    assert public_parts[0]["name"] == "PostgreSQL"
    assert all(part == {"name": part["name"], "ok": True} for part in public_parts)
    detailed_parts = parse_reply(Client().get("/readyz", headers=BEARER)).body["parts"]
    assert detailed_parts[0]["detail"].startswith("version 18")


@rolled_back
def test_readyz_is_503_while_redis_is_down(
    redis_outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/readyz reports both Redis databases as not ready during an outage, and recovers after it."""
    monkeypatch.setattr(health, "CHECK_LIFETIME_SECONDS", 0.0)  # check again for each request
    redis_outage.begin()
    answer = parse_reply(Client().get("/readyz"))
    assert answer.status == 503
    assert list_unready_parts(answer) == ["Redis (locks)", "Redis (cache)"]
    redis_outage.end()
    assert parse_reply(Client().get("/readyz")).status == 200


#: A program that prints the answers to GET /readyz and to GET /sales/1. The shop logs the error of
#: GET /sales/1 to stderr.
PRINT_ANSWERS = """
import django
django.setup()
from django.test import Client
for path in ("/readyz", "/sales/1"):
    print(Client().get(path, headers={"Host": "127.0.0.1"}).content.decode())
"""


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("mysql://ann@127.0.0.1:1/shop", "MySQL or MariaDB"),
        ("sqlite:////no/folder/shop.sqlite3", "SQLite"),
    ],
)
def test_unavailable_database_is_named_in_readyz_and_log(url: str, name: str) -> None:
    """If the database does not answer, /readyz and the log name its software, such as SQLite."""
    if url.startswith("mysql") and find_spec("pymysql") is None:
        if os.environ.get("CI"):
            pytest.fail(CLIENT_MISSING)
        pytest.skip(CLIENT_MISSING)
    completed = run_python("-c", PRINT_ANSWERS, SHOP_DEMO="1", DATABASE_URL=url)
    assert completed.returncode == 0, completed.stderr
    readyz, report = [json.loads(line) for line in completed.stdout.splitlines()]
    assert readyz["parts"][0]["name"] == name
    assert not readyz["parts"][0]["ok"]
    assert report["error"] == "the database does not answer; nothing was changed"
    assert f"/sales/1: {name}: " in completed.stderr


def test_readyz_checks_the_servers_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """/readyz returns the result of one check for a second.

    A check takes 8 ms, and any visitor may send any number of requests.
    """
    check_times: list[float] = []
    now = 0.0

    def check_parts() -> list[health.Part]:
        check_times.append(now)
        return [health.Part("PostgreSQL", True, "")]

    monkeypatch.setattr(health, "check_parts", check_parts)
    monkeypatch.setattr("shop.ops.health.time.monotonic", lambda: now)
    for request_time in (100.0, 100.9, 101.0):
        now = request_time
        for _ in range(3):
            assert parse_reply(Client().get("/readyz")).status == 200
    assert check_times == [100.0, 101.0]


@committed
def test_readyz_is_503_when_postgresql_is_down(tmp_path: Path) -> None:
    """/readyz reports all parts that need PostgreSQL as not ready."""
    with connect_django_to(tmp_path):
        answer = parse_reply(Client().get("/readyz"))
    assert answer.status == 503
    assert list_unready_parts(answer) == ["PostgreSQL", "migrations", "PostgreSQL timeouts"]


@rolled_back
def test_readyz_is_503_before_the_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """/readyz is 503 if a migration is not applied, and names the command that applies it."""
    monkeypatch.setattr(
        "django.db.migrations.executor.MigrationExecutor.migration_plan",
        lambda *args: ["an unapplied migration"],
    )
    answer = parse_reply(Client().get("/readyz"))
    assert answer.status == 503
    assert answer.body["parts"][1] == {
        "name": "migrations",
        "ok": False,
        "detail": "not all applied: run manage.py migrate",
    }


@rolled_back
@pytest.mark.parametrize("path", PROBE_PATHS)
@pytest.mark.parametrize("is_https", [False, True])
def test_probe_by_ip_address_needs_no_https(path: str, is_https: bool, settings: Settings) -> None:
    """A health check may use HTTP, and an IP address as the host.

    On other paths HTTP is redirected to HTTPS, and an IP address as the host is refused.
    """
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["shop.example.com"]
    answer = Client(headers={"host": "10.0.0.7:8000"}).get(path, secure=is_https)
    assert answer.status_code == 200


@pytest.mark.parametrize("timeout", ["0", "8001ms"])
@committed
def test_readyz_is_503_with_a_wrong_timeout(timeout: str) -> None:
    """/readyz is 503 if statement_timeout is above 8000 ms, the shop's setting, or 0 (no limit)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, false)", [timeout])
    try:
        answer = parse_reply(Client().get("/readyz"))
    finally:
        connection.close()
    assert answer.status == 503
    assert list_unready_parts(answer) == ["PostgreSQL timeouts"]
    detail = answer.body["parts"][-1]["detail"]
    assert detail.endswith("ALTER ROLE ... SET statement_timeout = 8000")
