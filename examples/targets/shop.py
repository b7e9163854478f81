"""What the shops of this folder share: a virtual environment of their own, a server, an end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from servers import embedded
from servers.embedded import ROOT, VAR
from servers.loopback import ask_loopback_directly, free_port
from servers.process import ServerProcess

HERE = Path(__file__).parent
#: Where each shop has its environment and its data.
FOLDER = VAR / "targets"
START_TIMEOUT = 300.0


class NotInstalled(RuntimeError):
    """A shop could not be installed. The message says why."""


@dataclass(frozen=True)
class ExampleShop:
    """A shop that is installed from packages.

    name      that of its folder in var/targets
    needs     what pip installs for it
    target    the file in this folder that says how it is bought from
    rush      further arguments of the rush
    page      a path that is answered when it is ready
    """

    name: str
    needs: Sequence[str]
    target: str
    rush: Sequence[str] = ()
    page: str = "/"

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def rush_command(self, url: str) -> list[str]:
        """The arguments of Python for one rush."""
        file = (HERE / self.target).relative_to(ROOT)
        return ["-m", "loadtest", "target", str(file), "--host", url, *self.rush]

    def install(self) -> None:
        """Make its environment, unless it has what it needs. Raises NotInstalled."""
        stamp = self.folder / "venv" / "installed.txt"
        wanted = "\n".join(self.needs)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"installing {', '.join(self.needs)} into {self.folder.relative_to(ROOT)}")
        self.folder.mkdir(parents=True, exist_ok=True)
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.needs]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(self.folder / "venv")],
            [str(self.python), *pip],
        ):
            if subprocess.run(command, cwd=ROOT, check=False).returncode:
                raise NotInstalled(f"{self.name} could not be installed: pip says why above")
        stamp.write_text(wanted)

    def prepare(self, *, repaired: bool) -> Mapping[str, str]:
        """Make what it needs beside its packages. Returns variables of its environment."""
        return {}

    def command(self, port: int) -> list[str]:
        """What is started."""
        raise NotImplementedError

    @contextmanager
    def running(self, *, repaired: bool = False) -> Iterator[str]:
        """The shop, installed and started on this machine; its address. Raises NotInstalled,
        NotReady, EmbeddedError."""
        ask_loopback_directly()
        self.install()
        embedded.attach()
        own = self.prepare(repaired=repaired)
        port = free_port(8001)
        with (self.folder / "log").open("wb") as log:
            process = ServerProcess(self.name, log)
            command = self.command(port)
            embedded.adopt(
                process.start(command, folder=self.folder, environment={**os.environ, **own})
            )
            url = f"http://127.0.0.1:{port}"
            try:
                process.wait_until(
                    lambda: _answers(url + self.page), timeout=START_TIMEOUT, every=0.1
                )
                yield url
            finally:
                process.stop()


def _answers(url: str) -> bool:
    with urlopen(url, timeout=60) as response:
        return bool(response.status == 200)
