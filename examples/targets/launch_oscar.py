"""How django-oscar is installed and started, as its guide says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from examples.targets.shop import HERE, ExampleShop, NotInstalled
from servers import embedded


@dataclass(frozen=True)
class Oscar(ExampleShop):
    def prepare(self, *, repaired: bool) -> Mapping[str, str]:
        """A database, migrated, with one product; it stays, because migrating takes minutes. Raises
        NotInstalled."""
        is_new = not embedded.has_database("oversold_target_oscar")
        dsn = embedded.create_database("oversold_target_oscar", keep=True)
        (self.folder / "dsn").write_text(dsn)
        own = {
            "OSCAR_DATABASE": urlsplit(dsn).path.removeprefix("/"),
            "OSCAR_DATABASE_HOST": parse_qs(urlsplit(dsn).query)["host"][0],
            "DJANGO_SETTINGS_MODULE": "oscar_project.settings",
            "PYTHONPATH": str(HERE),
            "VARIANT": "repaired" if repaired else "",
        }
        prepared = self.folder / "prepared.txt"
        if not is_new and prepared.exists() and prepared.read_text() == "\n".join(self.needs):
            return own
        print("migrating, once: it takes minutes")
        for command in (["django", "migrate", "--verbosity", "0"], ["oscar_project.stock_up"]):
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
        serve = ["-m", "gunicorn", "oscar_project.wsgi", "--bind", f"127.0.0.1:{port}"]
        size = ["--workers", "2", "--threads", "16", "--keep-alive", "60", "--no-control-socket"]
        return [str(self.python), *serve, *size]


SHOP = Oscar(
    name="oscar",
    needs=("django-oscar[sorl-thumbnail]~=4.2.1", "psycopg[binary]~=3.3.9", "gunicorn~=27.0"),
    target="oscar_target.py",
    rush=("--buyers", "60", "--stock", "30"),
    page="/catalogue/",
)
