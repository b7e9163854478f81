"""Every schedule of two buyers on SQLite: which strategies hold, and why `none` does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("transaction_mode", ["IMMEDIATE", "DEFERRED"])
def test_only_code_without_a_transaction_oversells(transaction_mode: str, tmp_path: Path) -> None:
    """SQLite's transactions are serializable: no buyer is overtaken after its read."""
    no_server = {"REDIS_URL": "redis://127.0.0.1:1/0", "DATABASE_URL_FILE": ""}
    done = subprocess.run(
        [sys.executable, "-m", "shop.tests.schedules.on_sqlite", str(tmp_path), transaction_mode],
        cwd=ROOT,
        env={**os.environ, **no_server},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    oversold_by_strategy = json.loads(done.stdout)
    assert {name for name, count in oversold_by_strategy.items() if count} == {"autocommit"}
    assert oversold_by_strategy["autocommit"] == 12
    assert {"none", "row-lock", "conditional", "buckets", "skip-locked"} < set(oversold_by_strategy)
