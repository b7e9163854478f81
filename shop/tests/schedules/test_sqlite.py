"""Two buyers on SQLite, in all 20 orders of their moves (schedules).

Even the strategy `none`, a transaction without a lock, sells every unit once on SQLite.
"""

from pathlib import Path

import pytest

from shop.tests.schedules.run_script import run_script

#: Schedules in which `autocommit` sells the only unit twice: both buyers read before either writes.
#: The number is the same on every database (docs/databases.md).
AUTOCOMMIT_OVERSELLING_SCHEDULES = 12


@pytest.mark.parametrize("transaction_mode", ["IMMEDIATE", "DEFERRED"])
def test_only_autocommit_oversells_on_sqlite(transaction_mode: str, tmp_path: Path) -> None:
    """SQLite's transactions are serializable, so each of them sells a unit once.

    `autocommit` reads and writes without a transaction around them.
    """
    oversold_by_strategy = run_script(
        "on_database",
        database_url=f"sqlite:///{tmp_path}/shop.sqlite3?transaction_mode={transaction_mode}",
        redis_url="redis://127.0.0.1:1/0",  # unused: the script runs no strategy that needs Redis
    )
    overselling = {name: count for name, count in oversold_by_strategy.items() if count}
    assert overselling == {"autocommit": AUTOCOMMIT_OVERSELLING_SCHEDULES}
    strategies_in_transactions = {"none", "row-lock", "conditional", "buckets", "skip-locked"}
    assert strategies_in_transactions <= oversold_by_strategy.keys(), "not every strategy was run"
