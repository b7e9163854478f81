"""A shop made with Django: on our PostgreSQL, in gunicorn, in two processes of 16 threads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from examples.targets.shop import HERE, ExampleShop, NotInstalled
from servers import embedded


@dataclass(frozen=True)
class DjangoShop(ExampleShop):
    """In this folder it has a package `<name>_project` with `settings`, and with `stock_up`, which
    puts one product up for sale unless there is one.

    wsgi       the module that gunicorn serves
    variables  those that the shop takes the name and the host of its database from
    fixed      its other variables
    """

    wsgi: str = ""
    variables: Sequence[str] = ()
    fixed: Sequence[tuple[str, str]] = ()

    def prepare(self, variant: str) -> Mapping[str, str]:
        """A database, migrated, with one product; it stays, because migrating takes minutes. Raises
        NotInstalled."""
        database = f"oversold_target_{self.name}"
        is_new = not embedded.has_database(database)
        dsn = embedded.create_database(database, keep=True)
        (self.folder / "dsn").write_text(dsn)
        name, host = self.variables
        own = {
            name: urlsplit(dsn).path.removeprefix("/"),
            host: parse_qs(urlsplit(dsn).query)["host"][0],
            "DJANGO_SETTINGS_MODULE": f"{self.name}_project.settings",
            "PYTHONPATH": str(HERE),
            "VARIANT": variant,
            **dict(self.fixed),
        }
        prepared = self.folder / "prepared.txt"
        if not is_new and prepared.exists() and prepared.read_text() == "\n".join(self.needs):
            return own
        print("migrating, once: it takes minutes")
        for command in (
            ["django", "migrate", "--verbosity", "0"],
            [f"{self.name}_project.stock_up"],
        ):
            done = subprocess.run(
                [str(self.python), "-m", *command],
                cwd=self.folder,
                env={**os.environ, **own},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise NotInstalled(f"{self.name}: {' '.join(command)} failed:\n{done.stderr}")
        prepared.write_text("\n".join(self.needs))
        return own

    def command(self, port: int) -> list[str]:
        serve = ["-m", "gunicorn", self.wsgi, "--bind", f"127.0.0.1:{port}"]
        size = ["--workers", "2", "--threads", "16", "--keep-alive", "60", "--no-control-socket"]
        return [str(self.python), *serve, *size]
