"""The rush under three locks on a running shop; with arguments, Locust with these arguments.

    python -m loadtest.commands.contrast                          none, token and redis, in turn
    python -m loadtest.commands.contrast --headless --lock redis  `locust` with these arguments

LOCUST_HOST is the shop's address; by default http://127.0.0.1:8000. SHOP_RESTOCK_TOKEN is the token
that opens its sales, or SHOP_RESTOCK_TOKEN_FILE names a file with the token. This command starts
Locust only, so the shop must be running.
"""

import os
import sys
from pathlib import Path

from rich.console import Console

from loadtest.commands.main import run_printing_errors
from loadtest.commands.rushes import DEMO_LOCKS, RushOptions, add_expected_verdict
from loadtest.report import tables
from loadtest.rush.locust.locust_process import LocustProcess
from loadtest.stack.client import Shop
from servers.loopback import exempt_loopback_from_proxies


def run(console: Console) -> int:
    """Run the rush under each of DEMO_LOCKS, and print a table of the verdicts.

    In a rush, many buyers send their purchases at the same instant. Return 0 if every verdict is
    the expected one, else 1. If the command line has arguments, Locust is run with them in place of
    this process, so the exit code is Locust's.

    Raises ShopUnreachable, StackError, and OSError if the file with the token cannot be read.
    """
    host = os.environ.get("LOCUST_HOST") or "http://127.0.0.1:8000"
    token = os.environ.get("SHOP_RESTOCK_TOKEN", "")
    if file := os.environ.get("SHOP_RESTOCK_TOKEN_FILE"):
        token = Path(file).read_text().strip()
    if arguments := sys.argv[1:]:
        os.environ["SHOP_RESTOCK_TOKEN"] = token
        command = [sys.executable, "-m", "locust", "--host", host]
        os.execv(sys.executable, command + arguments)
    exempt_loopback_from_proxies()
    Shop(host).strategies()  # raises ShopUnreachable, which is clearer than Locust's own error
    runs = []
    with LocustProcess(sys.stderr.buffer) as locust:
        for lock in DEMO_LOCKS:
            console.print(f"[dim]the rush, lock: {lock}[/]")
            plan = RushOptions().make_plan(lock, [host], token)
            runs.append(add_expected_verdict(locust.run_rush(plan)))
    console.print(tables.make_sheet(runs, tables.DEMO_COLUMNS).table())
    return 0 if all(run_of_lock["as_expected"] for run_of_lock in runs) else 1


if __name__ == "__main__":
    sys.exit(run_printing_errors(run))
