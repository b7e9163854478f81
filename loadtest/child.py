"""Locust as a library, in a process of its own: one start serves every rush.

It reads the options of a rush, a JSON object a line, and answers each with the rush's run. A line
with a `folder` asks for the rushes of the shop's page instead, which go through that folder:
shop/demo/rush.py has the other side, and says what its files mean. It ends with its input, so with
its parent. The users are those of the locustfile; nothing else imports that or Locust.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gevent
import locust
from gevent.event import Event
from gevent.fileobject import FileObject
from locust.argument_parser import parse_options
from locust.env import Environment
from locust.html import get_html_report
from locust.log import setup_logging
from locust.runners import STATE_STOPPED, MasterRunner

from loadtest.locustfile import Buyer, rushes
from servers.loopback import free_port

#: Buyers started per second. Above 100 Locust warns that the rate may not be kept: here it does not
#: matter, the barrier waits for all of them.
SPAWN_RATE = 400
#: Seconds between two looks at how far a rush is, and at what the page wants.
EVERY = 0.2

Heard = Callable[[dict[str, Any]], bool]


class Child:
    """The environment of all rushes, and its runner.

    workers  processes that the buyers are in; with one, this process has them
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        events: Any = locust.events
        options = parse_options(args=["--restock-token", ""])
        self.usual = dict(vars(options))
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
        self.is_over = Event()
        rushes.end_the_run = self.is_over.set  # this process stops each run itself

    def rush(self, asked: dict[str, Any], heard: Heard = lambda progress: False) -> dict[str, Any]:
        """Run one rush with these options. Returns its run.

        heard  called some times a second with how far it is; returns whether to stop it
        """
        self._wait_for_workers()
        self.is_over.clear()
        asked = {**self.usual, **asked}
        self.environment.host, *others = asked.pop("hosts")
        rushes.token = asked.pop("restock_token")
        report = asked.pop("report", "")
        asked["num_users"] = asked.pop("buyers")
        vars(self.environment.parsed_options).update(asked, nodes=",".join(others))
        start = gevent.spawn(self.runner.start, asked["num_users"], SPAWN_RATE)
        while not self.is_over.wait(EVERY):
            if (far := rushes.progress()) is not None and heard(far):
                break
        start.join()
        if report:
            Path(report).write_text(str(get_html_report(self.environment)))  # type: ignore[no-untyped-call]
        self.runner.stop()
        return rushes.last

    def serve(self, folder: Path, asked: dict[str, Any]) -> NoReturn:
        """Run each rush that the shop's page asks for, with what it wants and these options."""
        wanted, stop = folder / "wanted", folder / "stop"
        runs: dict[int, dict[str, Any]] = {}

        def write(state: object) -> None:
            new = folder / ".state"
            new.write_text(json.dumps(state))
            new.replace(folder / "state")

        def heard(progress: dict[str, Any]) -> bool:
            write({"rush": progress, "runs": runs})
            return stop.exists()

        while True:
            gevent.sleep(EVERY)
            if not wanted.exists():
                continue
            run = self.rush({**asked, **json.loads(wanted.read_text())}, heard)
            if "error" not in run:
                runs[run["sale"]] = run
            write({"rush": None, "runs": runs})
            stop.unlink(missing_ok=True)
            wanted.unlink()

    def _wait_for_workers(self) -> None:
        """Wait until all of them are there, and the last run is over: Locust's master asks once a
        second."""
        while isinstance(self.runner, MasterRunner) and not (
            self.runner.state in ("ready", STATE_STOPPED)
            and len(self.runner.clients.ready) == self.workers
        ):
            self.runner.check_stopped()
            gevent.sleep(0.02)


def main(workers: int) -> None:
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # what a target prints goes to the log
        setup_logging("INFO")  # type: ignore[no-untyped-call]
        child = Child(workers)
        asked = gevent.queue.Queue()

        def listen() -> None:
            for line in FileObject(os.dup(0)):
                asked.put(json.loads(line))
            os.killpg(0, signal.SIGKILL)  # with its workers: there is nothing to be lost

        gevent.spawn(listen)
        while True:
            told = asked.get()
            if folder := told.pop("folder", ""):
                child.serve(Path(folder), told)
            print(json.dumps(child.rush(told)), file=out, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
