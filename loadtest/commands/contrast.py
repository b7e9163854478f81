"""The contrast on a running shop; with arguments, one plain Locust run on it.

    python -m loadtest.commands.contrast                         none, token, redis: a verdict each
    python -m loadtest.commands.contrast --headless --lock redis  what `locust` would do with these

LOCUST_HOST is the shop's address. SHOP_RESTOCK_TOKEN, or the file that SHOP_RESTOCK_TOKEN_FILE
names, opens its sales. Nothing is started but Locust.
"""

import os
import signal
import sys
from pathlib import Path

from loadtest.commands.output import console_on_stdout
from loadtest.commands.rushes import CONTRAST, Setting, compared
from loadtest.judge.run import Run
from loadtest.report import tables as report
from loadtest.rush.locust_process import LocustProcess
from loadtest.stack.client import Shop, ShopUnreachable
from loadtest.stack.stack import StackError
from servers.loopback import ask_loopback_directly
from servers.signals import end_on_hangup_and_sigterm


def main(arguments: list[str]) -> int:
    """0 if every lock's verdict is the one that the shop's registry expects, 1 if not, 2 if a rush
    could not be run. With arguments this process becomes Locust, and the exit code is Locust's."""
    host = os.environ.get("LOCUST_HOST") or "http://127.0.0.1:8000"
    token = os.environ.get("SHOP_RESTOCK_TOKEN", "")
    if file := os.environ.get("SHOP_RESTOCK_TOKEN_FILE"):
        token = Path(file).read_text().strip()
    if arguments:
        os.environ["SHOP_RESTOCK_TOKEN"] = token
        os.execv(sys.executable, [sys.executable, "-m", "locust", "--host", host, *arguments])
    end_on_hangup_and_sigterm()  # PID 1 of a container ignores SIGTERM otherwise
    ask_loopback_directly()
    console = console_on_stdout()
    runs: list[Run] = []
    try:
        Shop(host).strategies()  # a shop that is not there says so better than Locust would
        with LocustProcess(sys.stderr.buffer) as buyers:
            for lock in CONTRAST:
                console.print(f"[dim]the rush, lock: {lock}[/]")
                run = buyers.rush([host], **Setting().rush, lock=lock, restock_token=token)
                runs.append(compared(run))
    except (ShopUnreachable, StackError) as error:
        console.print(str(error), style="red", highlight=False, soft_wrap=True, markup=False)
        return 2
    console.print(report.sheet(runs, report.DEMO).table())
    return 0 if all(run["as_expected"] for run in runs) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    sys.exit(main(sys.argv[1:]))
