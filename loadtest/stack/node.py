"""One application server, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import IO

from loadtest.stack.client import Shop, ShopUnreachable
from servers import embedded
from servers.embedded import ROOT
from servers.ports import free_port

#: Seconds for a node to answer after its start.
START_TIMEOUT = 30.0


class StackError(RuntimeError):
    """A part of the stack did not start. The message names its log."""


class Node:
    """A gunicorn master with its workers, in a session of its own.

    So the terminal's Ctrl-C does not reach it, and its process group can be killed as a whole.
    """

    def __init__(
        self, name: str, *, environment: dict[str, str], log: IO[bytes], port: int = 0
    ) -> None:
        self.name = name
        self.port = free_port(port)
        self.environment = environment
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """What is started."""
        return [
            *(sys.executable, "-m", "gunicorn"),
            *("-c", "python:shop.gunicorn_conf"),
            *("--bind", f"127.0.0.1:{self.port}"),
            "shop.wsgi",
        ]

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command(),
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        embedded.adopt(self.process.pid)

    def wait_until_ready(self, shop: Shop) -> None:
        """Wait until /readyz is good. Raises StackError."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                shop.ready()
                return
            except ShopUnreachable as error:
                assert self.process is not None
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise StackError(
                        f"node {self.name} did not start ({error}); see {self.log.name}"
                    ) from error
                time.sleep(0.05)

    def stop(self, timeout: float = 5.0) -> None:
        """End it by SIGTERM, and after `timeout` seconds its whole group by SIGKILL."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None
