"""Locust as a library, in a process of its own: one start serves every rush.

It reads one JSON object a line, {"rush": {option: value}} or {"stop": true}, and answers with lines
of {"progress": ...} and one of {"run": ...}. It ends with its input, so with its parent.
The users are those of the locustfile; nothing else imports that or Locust.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gevent
import locust
from gevent.event import Event
from gevent.fileobject import FileObject
from locust.argument_parser import parse_options
from locust.env import Environment
from locust.html import get_html_report
from locust.log import setup_logging
from locust.runners import STATE_STOPPED, MasterRunner
from locust.stats import PERCENTILES_TO_REPORT, StatsCSV

from loadtest.locustfile import Buyer, rushes
from servers.loopback import free_port

#: Buyers started per second. Above 100 Locust warns that the rate may not be kept: here it does not
#: matter, the barrier waits for all of them.
SPAWN_RATE = 400
#: Seconds between two lines of progress.
EVERY = 0.25


class Child:
    """The environment of all rushes, and its runner.

    workers  processes that the buyers are in; with one, this process has them
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        events: Any = locust.events
        options = parse_options(args=["--restock-token", ""])
        self.environment = Environment(user_classes=[Buyer], events=events, parsed_options=options)
        if workers == 1:
            self.runner: Any = self.environment.create_local_runner()
        else:
            port = free_port()
            self.runner = self.environment.create_master_runner("127.0.0.1", port)
            own = ["-f", "loadtest/locustfile.py", "--worker", "--master-host", "127.0.0.1"]
            command = [sys.executable, "-m", "locust", *own, "--master-port", str(port)]
            for _ in range(workers):
                subprocess.Popen(command, stdin=subprocess.DEVNULL)
        events.init.fire(environment=self.environment, runner=self.runner, web_ui=None)
        assert rushes.conductor is not None
        self.conductor = rushes.conductor
        self.is_over = Event()
        self.conductor.end_the_run = self.is_over.set  # this process stops each run itself

    def rush(self, asked: dict[str, Any], say: Any) -> dict[str, Any]:
        """Run one rush with these options. Returns its run."""
        self._wait_for_workers()
        self.is_over.clear()
        self.conductor.token = asked.pop("restock_token", "")
        report = asked.pop("report", "")
        self.environment.host = asked.pop("host")
        vars(self.environment.parsed_options).update(asked)
        start = gevent.spawn(self.runner.start, asked["num_users"], SPAWN_RATE)
        while not self.is_over.wait(EVERY):
            if (far := rushes.progress()) is not None:
                say({"progress": far})
        start.join()
        if report:
            self._save(Path(report))
        self.runner.stop()
        return self.conductor.last

    def _wait_for_workers(self) -> None:
        """Wait until all of them are there, and the last run is over: Locust's master asks once a
        second."""
        while isinstance(self.runner, MasterRunner) and not (
            self.runner.state in ("ready", STATE_STOPPED)
            and len(self.runner.clients.ready) == self.workers
        ):
            self.runner.check_stopped()
            gevent.sleep(0.02)

    def _save(self, path: Path) -> None:
        """Save Locust's own report and figures of this rush."""
        path.parent.mkdir(exist_ok=True)
        report = str(get_html_report(self.environment))  # type: ignore[no-untyped-call]
        path.with_suffix(".html").write_text(report)
        with path.with_suffix(".csv").open("w", newline="") as table:
            StatsCSV(self.environment, PERCENTILES_TO_REPORT).requests_csv(csv.writer(table))


def main(workers: int) -> None:
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # what a target prints goes to the log

        def say(line: dict[str, Any]) -> None:
            print(json.dumps(line), file=out, flush=True)

        setup_logging("INFO")  # type: ignore[no-untyped-call]
        child = Child(workers)
        asked = gevent.queue.Queue()

        def listen() -> None:
            for line in FileObject(os.dup(0)):
                told = json.loads(line)
                if "stop" in told:
                    child.is_over.set()
                else:
                    asked.put(told["rush"])
            os.killpg(0, signal.SIGKILL)  # with its workers: there is nothing to be lost

        gevent.spawn(listen)
        while True:
            say({"run": child.rush(asked.get(), say)})


if __name__ == "__main__":
    main(int(sys.argv[1]))
