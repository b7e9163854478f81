"""The contrast on a running shop; with arguments, one plain Locust run on it.

    python -m loadtest.commands.contrast                         none, token, redis: a verdict each
    python -m loadtest.commands.contrast --headless --lock redis  what `locust` would do with these

LOCUST_HOST is the shop's address. SHOP_RESTOCK_TOKEN, or the file that SHOP_RESTOCK_TOKEN_FILE
names, opens its sales. Nothing is started but Locust.
"""

import os
import sys
from pathlib import Path

from rich.console import Console

from loadtest.commands.main import exit_code_of
from loadtest.commands.rushes import CONTRAST, Setting, with_expectation
from loadtest.report import tables as report
from loadtest.rush.locust.locust_process import LocustProcess
from loadtest.stack.client import Shop
from servers.loopback import ask_loopback_directly


def run(console: Console) -> int:
    """Return 0 if every lock has its expected verdict, 1 if not, 2 if a rush could not be run.

    With arguments this process becomes Locust, and the exit code is Locust's.
    """
    host = os.environ.get("LOCUST_HOST") or "http://127.0.0.1:8000"
    token = os.environ.get("SHOP_RESTOCK_TOKEN", "")
    if file := os.environ.get("SHOP_RESTOCK_TOKEN_FILE"):
        token = Path(file).read_text().strip()
    if arguments := sys.argv[1:]:
        os.environ["SHOP_RESTOCK_TOKEN"] = token
        locust = [sys.executable, "-m", "locust", "--host", host]
        os.execv(sys.executable, locust + arguments)
    ask_loopback_directly()
    Shop(host).strategies()  # a shop that is not there says so better than Locust would
    runs = []
    with LocustProcess(sys.stderr.buffer) as buyers:
        for lock in CONTRAST:
            console.print(f"[dim]the rush, lock: {lock}[/]")
            run_of_lock = buyers.rush(Setting().plan(lock, [host], token))
            runs.append(with_expectation(run_of_lock))
    console.print(report.sheet(runs, report.DEMO_COLUMNS).table())
    return 0 if all(compared_run["as_expected"] for compared_run in runs) else 1


if __name__ == "__main__":
    sys.exit(exit_code_of(run))
