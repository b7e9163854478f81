"""Runs the scripts of this folder as processes, which use another database than the tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: Generous: MariaDB takes some tenths of a second for each wait of each of the 20 schedules.
TIMEOUT_SECONDS = 300


def run_script(script: str, *names: str, database_url: str, redis_url: str) -> dict[str, int]:
    """Run a script, and return its result for each strategy, such as the number of orders.

    Asserts that the script succeeds.

    script  the name of a module of this folder
    names   the names of the strategies that it runs
    """
    urls = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "DATABASE_URL_FILE": ""}
    completed = subprocess.run(
        [sys.executable, "-m", f"shop.tests.schedules.{script}", *names],
        cwd=ROOT,
        env={**os.environ, **urls},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    counts: dict[str, int] = json.loads(completed.stdout)
    return counts
