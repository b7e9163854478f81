"""The database of one run: a copy of one that was migrated once, which takes less time."""

import hashlib
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import IO

from loadtest.stack.node import PLAIN, StackError, inherited
from servers import embedded
from servers.embedded import ROOT

SETTINGS = "shop.settings"
#: Begins the name of the database that those of all stacks are copies of.
TEMPLATE = "oversold_template_"
#: The words of manage.py that make the shop's tables.
MIGRATE = ("migrate", "--no-input", "--verbosity", "0")


def create(progress: Callable[[str], None], *, log: IO[bytes]) -> str:
    """A new database with the shop's tables, dropped at the end. Returns its URL.

    Raises StackError where the shop's migrations fail.
    """
    template = f"{TEMPLATE}{_digest_of_migrations()}"
    if not embedded.has_database(template):
        progress("migrating, once")
        first = f"oversold_first_{secrets.token_hex(4)}"
        url = embedded.create_database(first)
        shop = {**PLAIN, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": SETTINGS}
        manage(*MIGRATE, environment={**inherited(), "DATABASE_URL_FILE": "", **shop}, log=log)
        embedded.keep_as(first, template, instead_of=TEMPLATE)
    name = f"oversold_run_{os.getpid()}_{secrets.token_hex(4)}"
    return embedded.create_database(name, template=template)


def manage(
    *words: str, environment: Mapping[str, str], log: IO[bytes], timeout: float | None = None
) -> str:
    """Run `manage.py` with these words. Returns what it printed, which the log has too. Raises
    StackError where it fails, or takes more than `timeout` seconds."""
    try:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"manage.py {words[0]} took more than {timeout:g} s") from error
    log.write(done.stdout)
    log.flush()
    if done.returncode:
        raise StackError(f"manage.py {words[0]} failed; see {log.name}")
    return done.stdout.decode(errors="replace")


def _digest_of_migrations() -> str:
    """Changes with what `manage.py migrate` would do."""
    digest = hashlib.sha256(metadata.version("django").encode())
    for file in sorted((ROOT / "shop" / "migrations").glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
