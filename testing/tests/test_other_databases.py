"""Tests of the plugin in projects on SQLite and on MariaDB."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import mariadb
from servers.embedded import ROOT
from servers.tests.running_mariadb import running_mariadb

PROJECT = Path(__file__).with_name("other_database.py")


@pytest.fixture
def mariadb_socket() -> Iterator[Path]:
    with running_mariadb() as server:
        yield server.socket


def run_project(database: dict[str, Any]) -> list[str]:
    """Run other_database.py with Django's settings of a database. Return the lines it prints."""
    process = subprocess.run(
        [sys.executable, str(PROJECT), json.dumps(database)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_lost_update_is_found_on_sqlite(tmp_path: Path) -> None:
    lines = run_project(
        {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(tmp_path / "shop.db"),
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        }
    )
    # The last line is about waiting calls, which SQLite cannot report.
    assert lines[:3] == [
        "buy_plainly: AssertionError: 2 orders for 1 unit",
        "buy_with_a_row_lock: passed",
        "buy_with_a_condition: passed",
    ]


@pytest.mark.parametrize("isolation_level", ["read committed", "repeatable read"])
def test_lost_update_is_found_on_mariadb(mariadb_socket: Path, isolation_level: str) -> None:
    lines = run_project(
        {
            "ENGINE": "django.db.backends.mysql",
            "NAME": mariadb.DATABASE,
            "USER": "root",
            "OPTIONS": {
                "unix_socket": str(mariadb_socket),
                "isolation_level": isolation_level,
                "ssl_disabled": True,
            },
        }
    )
    assert lines == [
        "buy_plainly: AssertionError: 2 orders for 1 unit",
        "buy_with_a_row_lock: passed",
        "buy_with_a_condition: passed",
        "a call waited for another: True",
    ]
