"""Every schedule of two buyers on SQLite, where even `none` sells exactly."""

from pathlib import Path

import pytest

from shop.tests.schedules.run_script import run_script


@pytest.mark.parametrize("transaction_mode", ["IMMEDIATE", "DEFERRED"])
def test_only_autocommit_oversells_on_sqlite(transaction_mode: str, tmp_path: Path) -> None:
    """SQLite's transactions are serializable: no other buyer can write during a transaction."""
    oversold_by_strategy = run_script(
        "on_database",
        database_url=f"sqlite:///{tmp_path}/shop.sqlite3?transaction_mode={transaction_mode}",
        redis_url="redis://127.0.0.1:1/0",  # unused: the script runs no strategy that needs Redis
    )
    assert {name for name, count in oversold_by_strategy.items() if count} == {"autocommit"}
    assert oversold_by_strategy["autocommit"] == 12  # as on every database (docs/databases.md)
    strategies_in_transactions = {"none", "row-lock", "conditional", "buckets", "skip-locked"}
    assert strategies_in_transactions <= oversold_by_strategy.keys(), "not every strategy was run"
