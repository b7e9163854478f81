"""A shop made with Django: on our PostgreSQL, in gunicorn, in two processes of 16 threads."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from examples.targets.shop import HERE, ExampleShop, NotInstalled
from servers import embedded


@dataclass(frozen=True)
class DjangoShop(ExampleShop):
    """In this folder a package `<name>_project` with `settings` and `stock_up`, which puts one product
    up for sale.

    wsgi       the module that gunicorn serves
    database   the variables with which the shop names its database: name, host, and fixed ones
    """

    wsgi: str = ""
    database: Sequence[str] = ()
    fixed: Sequence[tuple[str, str]] = ()

    def prepare(self, *, repaired: bool) -> Mapping[str, str]:
        """A new database, migrated, with one product. Raises NotInstalled."""
        dsn = embedded.create_database(f"oversold_{self.name}_{secrets.token_hex(4)}")
        (self.folder / "dsn").write_text(dsn)
        name, host = self.database
        own = {
            name: urlsplit(dsn).path.removeprefix("/"),
            host: parse_qs(urlsplit(dsn).query)["host"][0],
            "DJANGO_SETTINGS_MODULE": f"{self.name}_project.settings",
            "PYTHONPATH": str(HERE),
            **dict(self.fixed),
        }
        print("migrating")
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
        return own

    def command(self, port: int) -> list[str]:
        serve = ["-m", "gunicorn", self.wsgi, "--bind", f"127.0.0.1:{port}"]
        size = ["--workers", "2", "--threads", "16", "--keep-alive", "60", "--no-control-socket"]
        return [str(self.python), *serve, *size]
