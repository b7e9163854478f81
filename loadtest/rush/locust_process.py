"""Locust as a process of its own, driven by its REST interface: one start serves every rush.

Never imported here: `import locust` patches threading for the whole process.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from loadtest.stack.stack import ROOT, Stack, StackError, inherited
from servers import embedded
from servers.errors import NotReady
from servers.loopback import free_port
from servers.process import ServerProcess
from servers.signals import uninterrupted

#: Buyers started per second. Above 100 Locust warns that the rate may not be kept: here it does not
#: matter, the barrier waits for all of them.
SPAWN_RATE = 400
START_TIMEOUT = 30.0
#: Seconds for Locust to end: it keeps nothing that would be lost.
STOP_TIMEOUT = 2.0
#: The file of the buyers' events, beside those of the nodes.
BUYERS = "buyers.jsonl"


def new_token() -> str:
    """A LOCUST_TOKEN for one run."""
    return secrets.token_urlsafe(24)


class Buyers:
    """A Locust that waits for rushes to run. Use it as a context manager.

    stay     keep the buyers from one rush to the next: that saves starting them
    token    the LOCUST_TOKEN that a request for a rush has to show; a random one by default
    workers  processes that the buyers are in; with one, Locust's only process has them
    """

    def __init__(
        self,
        stack: Stack,
        *,
        log: IO[bytes],
        port: int = 0,
        stay: bool = False,
        token: str = "",
        workers: int = 1,
    ) -> None:
        self.stack = stack
        self.log = log
        self.port = free_port(port)
        self.stay = stay
        self.token = token or new_token()
        self.workers = workers
        self._waiting = 0  # buyers that stayed
        self._process = ServerProcess("Locust", log)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The pid of Locust; None while it does not run."""
        return None if self._process.process is None else self._process.process.pid

    def start(self) -> None:
        """Start Locust, without waiting for it. The nodes need not answer yet. Idempotent."""
        if self._process.process is not None:
            return
        first, *others = [node.url for node in self.stack.nodes]
        pid = self._process.start(
            [
                *(sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py"),
                *("--host", first, "--nodes", ",".join(others)),
                *("--web-host", "127.0.0.1", "--web-port", str(self.port)),
                *("--loglevel", "INFO"),
                *(["--stay"] if self.stay else []),
                *(["--history", str(self.stack.records / BUYERS)] if self.stack.record else []),
                *self._several(),
            ],
            folder=ROOT,
            environment={
                **inherited(),
                "SHOP_RESTOCK_TOKEN": self.stack.token,
                "LOCUST_TOKEN": self.token,
                "LOCUST_TOKEN_FILE": "",
                "PYTHONUTF8": "1",
            },
        )
        embedded.adopt(pid)

    def _several(self) -> list[str]:
        """The options for more than one process: they find each other on a port of this run."""
        if self.workers == 1:
            return []
        port = str(free_port())
        return [
            *("--processes", str(self.workers), "--master-bind-host", "127.0.0.1"),
            *("--master-bind-port", port, "--master-port", port),
        ]

    def stop(self) -> None:
        """End Locust, with its workers; nothing happens if it does not run."""
        with uninterrupted():
            session = self._process.process.pid if self._process.process is not None else 0
            self._process.stop(STOP_TIMEOUT)
            if session and self.workers > 1:  # Locust does not wait for them
                with suppress(ProcessLookupError):
                    os.killpg(session, signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def rush(
        self, *, lock: str, buyers: int, stock: int, hold_ms: int, product: str, deadline: float
    ) -> dict[str, Any]:
        """Run one rush. Returns the run as in `summary.json`. Raises StackError."""
        self.wait_until_ready()
        before = self._ask("/rush")["number"]
        wanted = {
            "lock": lock,
            "stock": stock,
            "hold_ms": hold_ms,
            "product": product,
            "deadline": deadline,
        }
        if self._waiting == buyers:
            self._begin("/rush", wanted)
        else:
            crowd = {"user_count": buyers, "spawn_rate": SPAWN_RATE}
            self._begin("/swarm", {**crowd, **wanted})
        given_up_at = time.monotonic() + buyers / SPAWN_RATE + buyers / 20 + deadline + 120
        while True:
            run = self._ask("/rush")
            if run.pop("number") > before and (self.stay or self._is_stopped()):
                whole = not {"error", "lost", "stopped"} & set(run)
                self._waiting = buyers if self.stay and whole else 0
                return run
            if time.monotonic() > given_up_at:
                raise StackError(f"the rush did not end; see {self.log.name}")
            time.sleep(0.05)

    def _begin(self, path: str, form: dict[str, Any]) -> None:
        started = self._ask(path, **form)
        if not started.get("success"):
            raise StackError(f"Locust did not start the rush: {started.get('message')}")

    def save(self, folder: Path, name: str) -> None:
        """Save Locust's own report and figures of the rushes since the last time."""
        with urlopen(f"{self.url}/stats/report?download=1", timeout=10) as report:
            (folder / f"{name}.html").write_bytes(report.read())
        with urlopen(f"{self.url}/stats/requests/csv", timeout=10) as table:
            (folder / f"{name}.csv").write_bytes(table.read())
        urlopen(self._request("/stats/reset", b""), timeout=10).close()

    def _is_stopped(self) -> bool:
        return bool(self._ask("/runs/state")["state"] == "stopped")

    def wait_until_ready(self) -> None:
        """Wait until Locust answers. Raises StackError."""
        try:
            self._process.wait_until(self._is_ready, timeout=START_TIMEOUT, every=0.05)
        except NotReady as error:
            raise StackError(str(error)) from error

    def _is_ready(self) -> bool:
        """Whether it answers, with all its workers."""
        count = self._ask("/worker-count")["worker_count"] if self.workers > 1 else self.workers
        return bool(self._ask("/rush")) and count == self.workers

    def _ask(self, path: str, **form: Any) -> dict[str, Any]:
        data = urlencode(form).encode() if form else None
        try:
            with urlopen(self._request(path, data), timeout=30) as response:
                return dict(json.load(response))
        except HTTPError as error:
            with error:
                said = error.read(2000).decode(errors="replace")
            raise StackError(
                f"Locust refused {path}: {error.code}: {said}; see {self.log.name}"
            ) from error
        except (URLError, OSError, ValueError) as error:
            raise StackError(
                f"Locust does not answer on {path} ({error}); see {self.log.name}"
            ) from error

    def _request(self, path: str, data: bytes | None) -> Request:
        return Request(self.url + path, data, {"Authorization": f"Bearer {self.token}"})
