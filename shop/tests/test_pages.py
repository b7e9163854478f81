"""GET /strategies, /healthz and /readyz."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from shop.strategies import STRATEGIES
from shop.tests.database import database_at
from shop.tests.outage import Outage
from shop.tests.till import answer_of, committed, rolled_back


def test_every_strategy_is_told_with_what_is_expected_of_it() -> None:
    told = answer_of(Client().get("/strategies")).body["strategies"]
    assert [strategy["name"] for strategy in told] == list(STRATEGIES)
    for strategy in told:
        assert strategy["expected"]["rush"] in {"exact", "oversold"}
        assert strategy["available"] is not bool(strategy.pop("needs")), strategy
        assert (settings.BASE_DIR / strategy.pop("file")).is_file()
        strategy.pop("available")
        assert isinstance(strategy.pop("sound"), bool)
        assert set(strategy.pop("stops")) <= set(strategy["expected"])
        assert set(strategy) == {"name", "title", "article", "summary", "expected"}
        assert all(strategy.values()), strategy


def test_healthz_touches_no_backend(redis_outage: Outage) -> None:
    """No mark for the database here: pytest-django would refuse a query."""
    redis_outage.begin()
    answer = answer_of(Client().get("/healthz"))
    assert (answer.status, answer.body) == (200, {"status": "ok"})


@rolled_back
def test_readyz_is_200_when_everything_answers() -> None:
    answer = answer_of(Client().get("/readyz"))
    assert answer.status == 200
    assert answer.body["status"] == "ready"
    assert [(part["name"], part["ok"]) for part in answer.body["parts"]] == [
        ("PostgreSQL", True),
        ("migrations", True),
        ("Redis (locks)", True),
        ("Redis (cache)", True),
    ]
    assert answer.body["parts"][0]["detail"].endswith("fsync on")


@rolled_back
def test_readyz_is_503_and_names_what_is_missing_when_redis_is_down(redis_outage: Outage) -> None:
    redis_outage.begin()
    answer = answer_of(Client().get("/readyz"))
    assert answer.status == 503
    assert answer.body["status"] == "not ready"
    assert [part["ok"] for part in answer.body["parts"]] == [True, True, False, False]
    assert "Connection refused" in answer.body["parts"][2]["detail"]


@committed
def test_readyz_is_503_when_postgresql_is_down(tmp_path: Path) -> None:
    with database_at(tmp_path):
        answer = answer_of(Client().get("/readyz"))
    assert answer.status == 503
    assert [part["ok"] for part in answer.body["parts"]] == [False, False, True, True]


@rolled_back
def test_readyz_is_503_before_the_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "django.db.migrations.executor.MigrationExecutor.migration_plan", lambda *args: ["0003"]
    )
    answer = answer_of(Client().get("/readyz"))
    assert answer.status == 503
    assert answer.body["parts"][1] == {
        "name": "migrations",
        "ok": False,
        "detail": "not all applied: run manage.py migrate",
    }
