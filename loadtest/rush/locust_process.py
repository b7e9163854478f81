"""Locust in one child process (loadtest/child.py), for all rushes of a command.

A buyer, with its POST /buy, is in loadtest/locustfile.py. Locust is never imported here: that
patches threading for the whole process.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, NoReturn, Self

from loadtest.stack.node import StackError, inherited
from servers.embedded import ROOT
from servers.signals import uninterrupted

#: The file of the buyers' events, next to those of the nodes.
BUYERS = "buyers.jsonl"


class NotSold(StackError):
    """The shop, or its target, was wrong; the message says all there is to know."""


@dataclass
class LocustProcess:
    """A Locust that waits for rushes to run. Use it as a context manager.

    log      where Locust's own log goes
    workers  processes that the buyers are in; with one, the child itself has them
    pid      its own, once it was started
    """

    log: IO[bytes]
    workers: int = 1
    pid: int = 0
    _was_ended: bool = False
    _child: subprocess.Popen[bytes] = field(init=False)

    def __enter__(self) -> Self:
        """Start Locust, without waiting for it. In a session of its own: Ctrl-C in the terminal
        does not reach it."""
        with uninterrupted():
            self._child = subprocess.Popen(
                [sys.executable, "-m", "loadtest.child", str(self.workers)],
                cwd=ROOT,
                env={**inherited(), "PYTHONUTF8": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                start_new_session=True,
            )
            self.pid = self._child.pid
        return self

    def __exit__(self, *_: object) -> None:
        """End Locust, with its workers."""
        with uninterrupted():
            if self._was_ended:
                return
            self._was_ended = True
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # there is nothing in it to be lost
            self._child.communicate()

    def rush(self, hosts: Sequence[str], **options: Any) -> dict[str, Any]:
        """Run one rush on the shop at these addresses. Returns the run as in `summary.json`. Raises
        StackError where there is none.

        options  buyers, and options of the locustfile: stock, lock, hold_ms, target, history ...
        """
        self._tell({"hosts": hosts, **options})
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise StackError(f"Locust ended in a rush; see {self.log.name}")
        run = dict(json.loads(line))
        if "error" in run:
            raise NotSold(run["error"])
        return run

    def serve(self, folder: str, hosts: Sequence[str], token: str) -> None:
        """From now on run the rushes that the page of the shop asks for through this folder."""
        self._tell({"folder": folder, "hosts": hosts, "restock_token": token})

    def wait(self) -> NoReturn:
        """Wait until Locust ends, which it does not by itself. Raises StackError then."""
        self._child.wait()
        raise StackError(f"Locust ended, and with it the page's rushes; see {self.log.name}")

    def _tell(self, line: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: rush() says so
            self._child.stdin.write(json.dumps(line).encode() + b"\n")
            self._child.stdin.flush()
