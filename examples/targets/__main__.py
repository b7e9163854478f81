"""Start a shop of this folder, and rush it.

    python -m examples.targets fastapi             start it; Ctrl-C stops it
    python -m examples.targets fastapi --rush      start it, rush it until it oversells, stop it
    python -m examples.targets fastapi --repaired --rush
    python -m examples.targets oscar --rush
    python -m examples.targets mysql --rush      needs MariaDB's server

What a shop needs is installed into var/targets/, a virtual environment for each.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from rich.console import Console

from loadtest.commands.main import EXPECTABLE_VERDICTS, exit_code_of
from servers import embedded
from servers.embedded import ROOT, VAR
from servers.loopback import free_port, runtime_folder
from servers.mariadb import MariaDB
from servers.process import ServerProcess
from servers.server_errors import EmbeddedError

HERE = Path(__file__).parent
START_TIMEOUT_SECONDS = 300.0
#: The line of a shop that oversells, and its repair.
REPAIRS = {
    "fastapi": (
        'sold = shop.execute("UPDATE product SET stock = ? WHERE stock > 0", [stock - 1])',
        'sold = shop.execute("UPDATE product SET stock = stock - 1 WHERE stock > 0")',
    ),
    "mysql": (
        "product = Product.objects.get(pk=1)",
        "product = Product.objects.select_for_update().get(pk=1)",
    ),
}


@dataclass(frozen=True)
class ExampleShop:
    """A shop that is installed from packages; its environment and its data are in var/targets/NAME.

    `prepare` makes what it needs besides its packages, repaired or not, and returns variables of
    its environment. Raises EmbeddedError.
    """

    name: str  # that of its folder, and of its target: NAME_target.py
    needs: Sequence[str]  # what pip installs for it
    prepare: Callable[[ExampleShop, bool], Mapping[str, str]]
    serve: str  # the arguments of its Python, with {port}
    rush: Sequence[str] = ()  # further arguments of the rush
    page: str = "/"  # a path that is answered when it is ready

    @property
    def folder(self) -> Path:
        return VAR / "targets" / self.name

    def python(self, *arguments: str, **own: str) -> None:
        """Run its Python in its folder, with these variables too. Raises EmbeddedError."""
        command = [f"{self.folder}/venv/bin/python"] + list(arguments)
        env = os.environ | own
        done = subprocess.run(command, cwd=self.folder, env=env, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise EmbeddedError(f"{self.name}: {' '.join(arguments)} failed:\n{done.stderr}")

    @contextmanager
    def running(self, *, repaired: bool = False) -> Iterator[str]:
        """The shop, installed and started on this machine; its address. Raises EmbeddedError."""
        print(f"installing {', '.join(self.needs)} into {self.folder.relative_to(ROOT)}")
        subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=False)
        self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.needs)
        embedded.attach()
        own = os.environ | self.prepare(self, repaired)
        port = free_port(8001)
        url = f"http://127.0.0.1:{port}"
        command = [f"{self.folder}/venv/bin/python", "-m"]
        command += self.serve.format(port=port).split()
        process = ServerProcess(self.name, self.folder / "log")
        embedded.kill_at_exit(process.start(command, folder=self.folder, environment=own))
        try:
            process.wait_until(
                lambda: urlopen(url + self.page, timeout=60).close() or True,
                timeout=START_TIMEOUT_SECONDS,
            )
            yield url
        finally:
            process.stop()


def copy_source(shop: ExampleShop, repaired: bool) -> None:
    """Copy the source of a shop of this folder, repaired or not. Raises EmbeddedError."""
    file = f"{shop.name}_shop.py"
    wrong, right = REPAIRS[shop.name]
    source = (HERE / file).read_text()
    if source.count(wrong) != 1:
        raise EmbeddedError(f"{file} has no line to repair any more: see __main__.py")
    if repaired:
        source = source.replace(wrong, right)
    (shop.folder / file).write_text(source)


def prepare_fastapi(shop: ExampleShop, repaired: bool) -> Mapping[str, str]:
    """Copy the shop, and remove the database of an earlier start."""
    copy_source(shop, repaired)
    for file in shop.folder.glob("shop.sqlite3*"):
        file.unlink()
    return {"SHOP": str(shop.folder / "shop.sqlite3")}


def prepare_mysql(shop: ExampleShop, repaired: bool) -> Mapping[str, str]:
    """Copy the shop, and start a MariaDB with its tables."""
    copy_source(shop, repaired)
    data = Path(tempfile.mkdtemp(prefix="mdb-", dir=runtime_folder()))
    # ON is the default from 11.6.2: a stale read then ends in error 1020.
    options = {"innodb_snapshot_isolation": "OFF"}
    server = MariaDB(data, log=(shop.folder / "mariadb.log").open("ab"), options=options)
    atexit.register(shutil.rmtree, data, ignore_errors=True)
    atexit.register(server.stop)  # before its folder is removed
    embedded.kill_at_exit(server.start())
    server.wait_until_ready()
    (shop.folder / "dsn").write_text(server.url())
    os.environ["SHOP_DATABASE"] = server.url()  # for the shop, and for the target in a rush
    shop.python("mysql_shop.py")
    return {}


def prepare_oscar(shop: ExampleShop, repaired: bool) -> Mapping[str, str]:
    """A database, migrated, with one product, as Oscar's guide says; it stays, because migrating
    takes minutes the first time."""
    dsn = embedded.create_database("oversold_target_oscar", keep=True)
    (shop.folder / "dsn").write_text(dsn)
    own = {
        "OSCAR_DATABASE": urlsplit(dsn).path.removeprefix("/"),
        "OSCAR_DATABASE_HOST": parse_qs(urlsplit(dsn).query)["host"][0],
        "DJANGO_SETTINGS_MODULE": "oscar_project.settings",
        "PYTHONPATH": str(HERE),
        "VARIANT": "repaired" if repaired else "",
    }
    print("migrating: the first time it takes minutes")
    shop.python("-m", "django", "migrate", "--verbosity", "0", **own)
    shop.python("-m", "oscar_project.stock_up", **own)
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
    "mysql": ExampleShop(
        name="mysql",
        needs=("Django~=5.2.0", "PyMySQL~=1.2.0", "gunicorn~=27.0"),
        prepare=prepare_mysql,
        serve="gunicorn mysql_shop:application --bind 127.0.0.1:{port} "
        "--workers 2 --threads 16 --keep-alive 60 --no-control-socket",
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code of the last rush, 2 where the shop did not start."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.targets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shop", choices=SHOPS)
    parser.add_argument("--rush", action="store_true", help="rush it, then end")
    parser.add_argument("--repaired", action="store_true", help="with the repair of README.md")
    parser.add_argument(
        "--expect", choices=EXPECTABLE_VERDICTS, default="exact", help="exit with 0 for this"
    )
    options = parser.parse_args(arguments)
    shop = SHOPS[options.shop]

    def run(_: Console) -> int:
        with shop.running(repaired=options.repaired) as url:
            file = str((HERE / f"{options.shop}_target.py").relative_to(ROOT))
            command = ["-m", "loadtest", "target", file, "--host", url]
            command += shop.rush
            command += ["--expect", options.expect]
            if options.rush:
                return subprocess.run([sys.executable] + command, check=False).returncode
            print(f"{options.shop} listens at {url}. Rush it from another terminal:")
            print(f"  .venv/bin/python {' '.join(command)}\nCtrl-C stops it", flush=True)
            while True:
                time.sleep(3600)

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
