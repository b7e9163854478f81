"""The contrast on a running shop; with arguments, one plain Locust run on it.

    python -m loadtest.commands.contrast                         none, token, redis: a verdict each
    python -m loadtest.commands.contrast --headless --lock redis  what `locust` would do with these

LOCUST_HOST is the shop's address. SHOP_RESTOCK_TOKEN, or the file that SHOP_RESTOCK_TOKEN_FILE
names, opens its sales. Nothing is started but Locust, as a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, cast

from rich.console import Console

from loadtest.commands.headless import NoResult, headless
from loadtest.commands.run import CONTRAST
from loadtest.commands.terminal import console as console_on_stdout
from loadtest.expected import EXPECTED
from loadtest.judge.run import Run
from loadtest.report import tables as report
from loadtest.rush.secret import secret
from loadtest.stack.client import Shop, ShopUnreachable
from servers.loopback import ask_loopback_directly


def main(arguments: list[str]) -> int:
    """0 if every lock came to the verdict that the shop's registry expects, 1 if not, 2 if a rush
    could not be run. With arguments this process becomes Locust, and the exit code is Locust's."""
    host = os.environ.get("LOCUST_HOST") or "http://127.0.0.1:8000"
    locust = [sys.executable, "-m", "locust", "--host", host]
    os.environ["SHOP_RESTOCK_TOKEN"] = secret("SHOP_RESTOCK_TOKEN")
    if arguments:
        os.execv(sys.executable, [*locust, *arguments])
    signal.signal(signal.SIGTERM, _exit_on_sigterm)  # PID 1 of a container ignores it otherwise
    ask_loopback_directly()
    console = console_on_stdout()
    try:
        Shop(host).strategies()  # a shop that is not there says so better than Locust would
        runs = contrast(locust, console)
    except (ShopUnreachable, NoResult) as error:
        console.print(str(error), style="red", highlight=False, soft_wrap=True, markup=False)
        return 2
    console.print(report.fitting(runs, report.DEMO, console))
    return 0 if all(run["as_expected"] for run in runs) else 1


def contrast(locust: list[str], console: Console) -> list[Run]:
    """One rush per lock of the contrast; what each came to. Raises NoResult."""
    runs = []
    for lock in CONTRAST:
        console.print(f"[dim]the rush, lock: {lock}[/]")
        run = rush(locust, lock)
        expected = EXPECTED[lock]["rush"]
        judged = {**run, "expected": expected, "as_expected": run["verdict"] == expected}
        runs.append(cast(Run, judged))
    return runs


def rush(locust: list[str], lock: str) -> dict[str, Any]:
    """One headless run with what locust.conf says of buyers; its result. Raises NoResult."""
    try:
        return headless([*locust, "--lock", lock])
    except NoResult as error:
        again = f"python -m loadtest.commands.contrast --headless --lock {lock}"
        raise NoResult(f"{error}. Try it alone: {again}") from error


def _exit_on_sigterm(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
