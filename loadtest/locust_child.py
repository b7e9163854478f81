"""Locust as a library, in a process that is started once for all rushes.

The process reads requests as JSON, one per line, and prints the answers:

    {"rush": {...}}            Run a rush with this RushPlan. The answer is the run (its figures and
                               its verdict), or the BuyersReport if the plan's `judge` is false.
    {"reread_orders": true}    Read the orders of the last rush again. The answer has the changes.
    {"serve": {...}, "folder": "..."}
                               Run the rushes that the shop's page starts, until the process ends.
                               Their plan is this RushPlan with the page's choices. The page and
                               this process share the folder; see demo/rush_folder.py. There is no
                               answer.

The process ends when its stdin ends, which also happens when its parent ends. The locustfile has
the users. The parent itself imports neither the locustfile nor Locust, because importing Locust
patches threading.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
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

from loadtest.locustfile import ShopUser, rushes
from loadtest.rush.plan import RushPlan
from servers.loopback import find_free_port

#: Buyers started per second. Above 100 Locust warns that it may not keep the rate. This does not
#: matter here, because no buyer sends its purchase before all buyers have been started.
SPAWN_RATE = 400
#: Time between two checks of a rush's progress, and of the page's requests.
POLL_INTERVAL_SECONDS = 0.2
#: Time between two checks whether all workers are ready.
WORKER_POLL_INTERVAL_SECONDS = 0.02

#: A function that gets the progress of a rush several times a second, and returns whether to stop
#: the rush.
ReportProgress = Callable[[dict[str, Any]], bool]


class EmbeddedLocust:
    """Locust in this process: its environment and its runner, which all rushes use.

    workers  the number of processes that run buyers; if it is 1, this process runs them
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        events: Any = locust.events
        # Without this option Locust would read the token from the environment. But each rush has
        # the token in its plan.
        options = parse_options(args=["--restock-token", ""])
        self.environment = Environment(
            user_classes=[ShopUser], events=events, parsed_options=options
        )
        if workers == 1:
            self.runner: Any = self.environment.create_local_runner()
        else:
            port = find_free_port()
            self.runner = self.environment.create_master_runner("127.0.0.1", port)
            for _ in range(workers):
                _start_worker(port)
        events.init.fire(environment=self.environment, runner=self.runner, web_ui=None)
        self.rush_ended = Event()
        # At the end of a rush, wake run_rush(), which then stops Locust's run.
        rushes.end_run = self.rush_ended.set

    def run_rush(
        self, plan: RushPlan, report_progress: ReportProgress | None = None
    ) -> dict[str, Any]:
        """Run one rush, and return its run: the figures and the verdict, as in `summary.json`.

        If the plan's `judge` is False, return the BuyersReport as JSON instead. If the rush has
        failed, the run has an `error`.
        """
        self._wait_for_workers()
        self.rush_ended.clear()
        self.environment.host = plan.hosts[0]
        rushes.plan = plan
        spawning = gevent.spawn(self.runner.start, plan.buyers, SPAWN_RATE)
        while not self.rush_ended.wait(POLL_INTERVAL_SECONDS):
            progress = rushes.describe_progress()
            if progress is None or report_progress is None:
                continue
            should_stop = report_progress(progress)
            if should_stop:
                break
        spawning.join()
        if plan.locust_report:
            page = get_html_report(self.environment)  # type: ignore[no-untyped-call]
            Path(plan.locust_report).write_text(str(page))
        self.runner.stop()
        return rushes.last_run

    def serve(self, folder: Path, plan: RushPlan) -> NoReturn:
        """Run each rush that the shop's page starts, until the process ends.

        folder  the folder that the page and this process share (demo/rush_folder.py)
        plan    the plan of each rush, before the page's choices replace some of its fields
        """
        wanted_file = folder / "wanted"
        stop_file = folder / "stop"
        runs: dict[int, dict[str, Any]] = {}

        def write_state(state: object) -> None:
            new_file = folder / ".state"
            new_file.write_text(json.dumps(state))
            new_file.replace(folder / "state")

        def report_progress(progress: dict[str, Any]) -> bool:
            write_state({"rush": progress, "runs": runs})
            return stop_file.exists()

        while True:
            gevent.sleep(POLL_INTERVAL_SECONDS)
            if not wanted_file.exists():
                continue
            wanted_rush = json.loads(wanted_file.read_text())
            run = self.run_rush(replace(plan, **wanted_rush), report_progress)
            if "error" not in run:
                runs[run["sale"]] = run
            write_state({"rush": None, "runs": runs})
            stop_file.unlink(missing_ok=True)
            wanted_file.unlink()

    def _wait_for_workers(self) -> None:
        """Wait until the last run is over and all workers are ready. Without workers, return."""
        runner = self.runner
        if not isinstance(runner, MasterRunner):
            return
        while (
            runner.state not in ("ready", STATE_STOPPED)
            or len(runner.clients.ready) != self.workers
        ):
            runner.check_stopped()  # by itself, Locust checks this only once a second
            gevent.sleep(WORKER_POLL_INTERVAL_SECONDS)


def _start_worker(port: int) -> None:
    """Start a worker of the Locust master on this port."""
    command = [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--worker"]
    command += ["--master-host", "127.0.0.1", "--master-port", str(port)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL)


def main(workers: int) -> None:
    """Answer the requests on stdin one after the other, until stdin ends.

    The request `serve` has no answer, because serve() runs until the process ends.

    workers  the number of processes that run buyers
    """
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # what a target's code prints goes to the log, not between the answers
        setup_logging("INFO")  # type: ignore[no-untyped-call]
        embedded_locust = EmbeddedLocust(workers)
        requests = gevent.queue.Queue()

        def read_requests() -> None:
            for line in FileObject(os.dup(0)):
                requests.put(json.loads(line))
            # The parent has ended. Kill this process and its workers, which have nothing to save.
            os.killpg(0, signal.SIGKILL)

        gevent.spawn(read_requests)
        while True:
            request = requests.get()
            match request:
                case {"serve": fields, "folder": folder}:
                    embedded_locust.serve(Path(folder), RushPlan(**fields))
                case {"rush": fields}:
                    answer = embedded_locust.run_rush(RushPlan(**fields))
                case {"reread_orders": True}:
                    answer = rushes.reread_orders()
                case _:
                    raise ValueError(
                        f"the request must be rush, reread_orders or serve, not {request!r:.80}"
                    )
            print(json.dumps(answer), file=output, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
