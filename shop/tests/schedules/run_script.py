"""Runs a script of this folder in a separate process, on another database than the tests use."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: On MariaDB each wait of a buyer takes some tenths of a second, and there are 20 schedules.
TIMEOUT_SECONDS = 300


def run_script(
    script: str, *strategy_names: str, database_url: str, redis_url: str
) -> dict[str, int]:
    """Run a script, and return the number that it prints for each strategy.

    `on_database` prints the number of schedules that oversell, `late_lock` the number of orders.
    Asserts that the script succeeds.

    script          the name of a module of this folder, without the package
    strategy_names  the script's arguments
    """
    urls = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "DATABASE_URL_FILE": ""}
    completed = subprocess.run(
        [sys.executable, "-m", f"shop.tests.schedules.{script}", *strategy_names],
        cwd=ROOT,
        env={**os.environ, **urls},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    number_by_strategy: dict[str, int] = json.loads(completed.stdout)
    return number_by_strategy
