"""Locust as a process of its own for one load run. Never imported here: `import locust` patches
threading for the whole process."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from loadtest.load.figures import Measured, measured
from loadtest.load.plan import DRAIN, Plan
from loadtest.stack.stack import ROOT, StackError, inherited
from servers import embedded
from servers.loopback import free_port
from servers.process import ServerProcess

#: Clients started per second by each worker.
SPAWN_RATE = 200
#: Seconds that Locust may take beside what the plan says: to start, to connect its workers, to
#: write what it measured and to end.
BESIDE = 90.0


def run(plan: Plan, *, log: IO[bytes], progress: Callable[[], None] = lambda: None) -> Measured:
    """Run Locust for this plan, and wait for it. Raises StackError where it measured nothing.

    progress  called some times a second meanwhile

    However this ends, Locust and its workers have ended.
    """
    with tempfile.TemporaryDirectory(prefix="oversold-") as folder:
        plan_file, result = Path(folder) / "plan.json", Path(folder) / "result.json"
        plan.write(plan_file)
        locust = ServerProcess("Locust", log)
        pid = locust.start(
            [*command(plan), "--plan", plan_file, "--result", result, user_class(plan)],
            folder=ROOT,
            environment={**inherited(), "PYTHONUTF8": "1"},
        )
        try:
            embedded.adopt(pid)
            _wait(locust, plan, progress)
        finally:
            locust.stop(0)  # the whole session at once: there is nothing in it to be lost
            with suppress(OSError):  # workers whose master has died
                os.killpg(pid, signal.SIGKILL)
        if not result.exists():
            raise StackError(f"Locust measured nothing; see {locust.log_name}\n{locust.tail()}")
        return measured(json.loads(result.read_text()))


def command(plan: Plan) -> list[str]:
    """Locust, without the plan's files."""
    port = str(free_port())
    distributed = ["--processes", str(plan.locust_workers)] if plan.locust_workers else []
    return [
        *(sys.executable, "-m", "locust", "-f", "loadtest/load/locustfile.py", "--headless"),
        *("--users", str(plan.users), "--spawn-rate", str(SPAWN_RATE * plan.shares)),
        *("--host", plan.hosts[0], "--only-summary", "--stop-timeout", "0"),
        *("--master-host", "127.0.0.1", "--master-bind-host", "127.0.0.1"),
        *("--master-port", port, "--master-bind-port", port),
        *distributed,
    ]


def user_class(plan: Plan) -> str:
    """The name of the users in the locustfile that make this load."""
    return "Arrivals" if plan.is_open else "Client"


def _wait(locust: ServerProcess, plan: Plan, progress: Callable[[], None]) -> None:
    longest = plan.users / SPAWN_RATE + plan.warm_up + plan.seconds + DRAIN + BESIDE
    deadline = time.monotonic() + longest
    assert locust.process is not None
    while locust.process.poll() is None:
        if time.monotonic() > deadline:
            raise StackError(f"Locust did not end within {longest:.0f} s; see {locust.log_name}")
        progress()
        time.sleep(0.1)
