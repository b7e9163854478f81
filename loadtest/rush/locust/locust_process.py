"""Locust in one child process (loadtest/locust_child.py), which runs all rushes of a command.

loadtest/locustfile.py has the buyers. Locust is not imported here, because importing it patches
threading for the whole process.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

from loadtest.rush.buyers_report import BuyersReport
from loadtest.rush.plan import RushPlan
from loadtest.stack.node import StackError, make_child_environment
from servers.embedded import ROOT
from servers.process import describe_end
from servers.signals import uninterrupted

#: The file of the buyers' events, next to the files of the nodes' events.
BUYERS_HISTORY = "buyers.jsonl"


class RushFailed(StackError):
    """The rush has no verdict.

    Usually the target's file has an error, or the shop does not answer.
    """


@dataclass
class LocustProcess:
    """A child process in which Locust runs one rush after the other. Use it as a context manager.

    log      the file of Locust's own log
    workers  the number of processes that run buyers; if it is 1, the child itself runs them
    pid      the process id of the child; 0 before it is started

    `_end_reason_at_exit` is what why_ended() returned at the end of the `with` block; before that
    it is None.
    """

    log: IO[bytes]
    workers: int = 1
    pid: int = 0
    _end_reason_at_exit: str | None = None
    _child: subprocess.Popen[bytes] = field(init=False)

    def __enter__(self) -> Self:
        """Start the child without waiting until Locust is ready.

        The child runs in a new session, so that Ctrl-C in the terminal does not reach it.
        """
        with uninterrupted():
            self._child = subprocess.Popen(
                [sys.executable, "-m", "loadtest.locust_child", str(self.workers)],
                cwd=ROOT,
                env={**make_child_environment(), "PYTHONUTF8": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                start_new_session=True,
            )
            self.pid = self._child.pid
        return self

    def __exit__(self, *_: object) -> None:
        """Kill Locust's child process and its workers."""
        with uninterrupted():
            if self._end_reason_at_exit is not None:
                return
            self._end_reason_at_exit = self.why_ended()
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # Locust has nothing to save
            self._child.communicate()

    def run_rush(self, plan: RushPlan) -> dict[str, Any]:
        """Run one rush, and return its figures and its verdict, as a run in `summary.json`.

        Raises StackError.
        """
        return self._request({"rush": asdict(plan)})

    def run_unjudged_rush(self, plan: RushPlan) -> BuyersReport:
        """Run one rush that the caller judges. Raises StackError."""
        answer = self._request({"rush": asdict(replace(plan, judge=False))})
        return BuyersReport.from_json(answer)

    def reread_orders(self) -> dict[str, Any]:
        """Read the orders of the last rush again; see Rush.reread_orders(). Raises StackError.

        The returned dict has these fields:

        orders   the number of orders now
        changes  a sentence on each difference from the orders and the stock that were judged
        possible_earlier_orders  the number of orders that may be from before the rush: they look
                 new, because their number or buyer has changed since
        """
        return self._request({"reread_orders": True})

    def run_rushes_of_page(self, folder: str, plan: RushPlan) -> None:
        """Let the child run the rushes that the shop's page requests.

        The page writes its requests into files of `folder`; demo/rush_folder.py describes them.

        plan  the addresses of the shop and its token; the page chooses the other fields
        """
        self._send({"serve": asdict(plan), "folder": folder})

    def why_ended(self) -> str:
        """Return why Locust ended by itself, with the last lines of its log.

        Return "" if Locust still runs, or if this object has stopped it.
        """
        if self._end_reason_at_exit is not None:
            return self._end_reason_at_exit
        exit_code = self._child.poll() if self.pid else None
        if exit_code is None:
            return ""
        return describe_end("Locust", exit_code, Path(str(self.log.name)))

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the child, and return its answer. Raises StackError."""
        self._send(request)
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line.endswith(b"\n"):
            raise StackError(f"Locust ended in a rush; see {self.log.name}")
        answer = dict(json.loads(line))
        if "error" in answer:
            raise RushFailed(answer["error"])
        return answer

    def _send(self, request: dict[str, Any]) -> None:
        """Write a request to the child's stdin, as one line of JSON."""
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # the child has ended; _request() raises an error
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()
