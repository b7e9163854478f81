"""Debian's nginx with the project's own configuration, in front of nodes on this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, Self

import psutil

from loadtest.tests.raw_clients import HEALTH, whole_answer
from servers import embedded
from servers.embedded import ROOT
from servers.loopback import free_port
from servers.process import ServerProcess

FOLDER = ROOT / "deploy" / "docker"
#: Directives that nginx knows only since 1.27: to ask for names again, and a milder reload.
NEW = re.compile(r" resolve\b|^ *keepalive_min_timeout .*\n", re.MULTILINE)


def program() -> str | None:
    """Where nginx is; None where it is not installed."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Nginx:
    """One nginx, and the ports of the two nodes behind it. A context manager."""

    def __init__(self, folder: Path, *, nodes: Sequence[int], log: IO[bytes]) -> None:
        self.port = free_port()
        self.folder = folder
        self._nodes = nodes
        self._server = ServerProcess("nginx", log)

    def __enter__(self) -> Self:
        found = (FOLDER / "nginx.conf").read_text()
        here = found.replace("/tmp/", f"{self.folder}/")
        here = here.replace("listen 8080;", f"listen 127.0.0.1:{self.port};")
        assert here.count(str(self.folder)) >= 7
        assert str(self.port) in here
        configuration = self.folder / "nginx.conf"
        configuration.write_text(NEW.sub("", here))
        self._write(down=())
        user = "user root;" if os.geteuid() == 0 else ""  # the folder is this user's
        command: list[str | Path] = [
            program() or "nginx",
            "-c",
            configuration,
            "-g",
            f"daemon off; {user}",
        ]
        embedded.adopt(self._server.start(command))
        self._server.wait_until(
            lambda: whole_answer(self.port, HEALTH).startswith(b"HTTP/1.1 200"), timeout=15
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def send_nothing_to(self, *nodes: int) -> None:
        """Take these nodes out, by number, and wait until nothing is under way to them, as
        rolling_restart.sh does."""
        assert self._server.process is not None
        before = psutil.Process(self._server.process.pid).children()
        self._write(down=nodes)
        self._server.process.send_signal(signal.SIGHUP)
        psutil.wait_procs(before, timeout=45)
        assert not any(worker.is_running() for worker in before)

    def _write(self, down: Collection[int]) -> None:
        text = (FOLDER / "nginx.nodes.conf").read_text()
        for number, (name, port) in enumerate(zip(("web-a", "web-b"), self._nodes, strict=True)):
            assert f"server {name}:8000" in text
            is_down = " down" if number in down else ""
            text = text.replace(f"server {name}:8000", f"server 127.0.0.1:{port}{is_down}")
        (self.folder / "nodes.conf").write_text(NEW.sub("", text))
