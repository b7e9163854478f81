"""The shops of this folder: how each is installed into a virtual environment, started and ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from servers import embedded
from servers.embedded import ROOT, VAR
from servers.loopback import ask_loopback_directly, free_port
from servers.process import ServerProcess

HERE = Path(__file__).parent
START_TIMEOUT = 300.0
#: The line of fastapi_shop.py that oversells, and its repair.
WRONG = 'sold = shop.execute("UPDATE product SET stock = ? WHERE stock > 0", [stock - 1])'
RIGHT = 'sold = shop.execute("UPDATE product SET stock = stock - 1 WHERE stock > 0")'


class NotInstalled(RuntimeError):
    """A shop could not be installed. The message says why."""


@dataclass(frozen=True)
class ExampleShop:
    """A shop that is installed from packages; its environment and its data are in var/targets/NAME.

    name     that of its folder, and of its target: NAME_target.py
    needs    what pip installs for it
    prepare  makes what it needs besides its packages, repaired or not; returns variables of its
             environment. Raises NotInstalled
    serve    the arguments of its Python, with {port}
    rush     further arguments of the rush
    page     a path that is answered when it is ready
    """

    name: str
    needs: Sequence[str]
    prepare: Callable[[ExampleShop, bool], Mapping[str, str]]
    serve: str
    rush: Sequence[str] = ()
    page: str = "/"

    @property
    def folder(self) -> Path:
        return VAR / "targets" / self.name

    def python(self, *arguments: str, **own: str) -> subprocess.CompletedProcess[str]:
        """Run its Python in its folder, with these variables too."""
        command = [str(self.folder / "venv" / "bin" / "python"), *arguments]
        env = {**os.environ, **own}
        return subprocess.run(command, cwd=self.folder, env=env, stderr=subprocess.PIPE, text=True)

    def rush_command(self, url: str) -> list[str]:
        """The arguments of Python for one rush."""
        file = (HERE / f"{self.name}_target.py").relative_to(ROOT)
        return ["-m", "loadtest", "target", str(file), "--host", url, *self.rush]

    def install(self) -> None:
        """Make its environment, unless it has what it needs. Raises NotInstalled."""
        stamp, wanted = self.folder / "venv" / "installed.txt", "\n".join(self.needs)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"installing {', '.join(self.needs)} into {self.folder.relative_to(ROOT)}")
        self.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", self.folder / "venv"], check=False)
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        if (done := self.python(*pip, *self.needs)).returncode:
            raise NotInstalled(f"{self.name} could not be installed: {done.stderr}")
        stamp.write_text(wanted)

    @contextmanager
    def running(self, *, repaired: bool = False) -> Iterator[str]:
        """The shop, installed and started on this machine; its address. Raises NotInstalled,
        NotReady, EmbeddedError."""
        ask_loopback_directly()
        self.install()
        embedded.attach()
        own = {**os.environ, **self.prepare(self, repaired)}
        port = free_port(8001)
        url = f"http://127.0.0.1:{port}"
        command = [str(self.folder / "venv" / "bin" / "python"), "-m"]
        command += self.serve.format(port=port).split()
        with (self.folder / "log").open("wb") as log:
            process = ServerProcess(self.name, log)
            embedded.adopt(process.start(command, folder=self.folder, environment=own))
            try:
                process.wait_until(lambda: _answers(url + self.page), timeout=START_TIMEOUT)
                yield url
            finally:
                process.stop()


def _answers(url: str) -> bool:
    with urlopen(url, timeout=60) as response:
        return bool(response.status == 200)


def prepare_fastapi(shop: ExampleShop, repaired: bool) -> Mapping[str, str]:
    """A copy of its source, repaired or not, and a new database."""
    source = (HERE / "fastapi_shop.py").read_text()
    if source.count(WRONG) != 1:
        raise NotInstalled("fastapi_shop.py has no line to repair any more: see shops.py")
    copy = source.replace(WRONG, RIGHT) if repaired else source
    (shop.folder / "fastapi_shop.py").write_text(copy)
    for file in shop.folder.glob("shop.sqlite3*"):
        file.unlink()
    return {"SHOP": str(shop.folder / "shop.sqlite3")}


def prepare_oscar(shop: ExampleShop, repaired: bool) -> Mapping[str, str]:
    """A database, migrated, with one product, as Oscar's guide says; it stays, because migrating
    takes minutes."""
    is_new = not embedded.has_database("oversold_target_oscar")
    dsn = embedded.create_database("oversold_target_oscar", keep=True)
    (shop.folder / "dsn").write_text(dsn)
    own = {
        "OSCAR_DATABASE": urlsplit(dsn).path.removeprefix("/"),
        "OSCAR_DATABASE_HOST": parse_qs(urlsplit(dsn).query)["host"][0],
        "DJANGO_SETTINGS_MODULE": "oscar_project.settings",
        "PYTHONPATH": str(HERE),
        "VARIANT": "repaired" if repaired else "",
    }
    prepared, wanted = shop.folder / "prepared.txt", "\n".join(shop.needs)
    if not is_new and prepared.exists() and prepared.read_text() == wanted:
        return own
    print("migrating, once: it takes minutes")
    for command in ("django migrate --verbosity 0", "oscar_project.stock_up"):
        if (done := shop.python("-m", *command.split(), **own)).returncode:
            raise NotInstalled(f"{shop.name}: {command} failed:\n{done.stderr}")
    prepared.write_text(wanted)
    return own


SHOPS = {
    "fastapi": ExampleShop(
        name="fastapi",
        needs=("fastapi~=0.165.0", "uvicorn~=0.54.0"),
        prepare=prepare_fastapi,
        serve="uvicorn fastapi_shop:app --workers 2 --log-level warning "
        "--host 127.0.0.1 --port {port}",
        page="/openapi.json",
    ),
    "oscar": ExampleShop(
        name="oscar",
        needs=("django-oscar[sorl-thumbnail]~=4.2.1", "psycopg[binary]~=3.3.9", "gunicorn~=27.0"),
        prepare=prepare_oscar,
        serve="gunicorn django.core.wsgi:get_wsgi_application() --bind 127.0.0.1:{port} "
        "--workers 2 --threads 16 --keep-alive 60 --no-control-socket",
        rush=("--buyers", "60", "--stock", "30"),
        page="/catalogue/",
    ),
}
