"""The shop behind PgBouncer in transaction mode, over TLS to it and to Redis: it checks their
certificates, sells right, and the role's timeouts hold.

The wheels' servers speak no TLS: PgBouncer ends it before PostgreSQL, Debian's Redis speaks it.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import redis

from servers import embedded
from servers.loopback import free_port
from servers.process import ServerProcess
from shop.ops.postgres import TIMEOUTS_MS
from shop.strategies import STRATEGIES
from shop.tests.least_privilege import make_secrets, roles_of_compose
from shop.tests.node import UNITS, Node, rush
from shop.tests.purchases import eventually

#: Those of the database, and some that hold their lock or their stock in Redis.
LOCKS = [
    *(name for name, one in STRATEGIES.items() if one.backend == "postgresql"),
    *("token", "redis", "counter"),
]


#: Debian puts it where a user's PATH may not lead.
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
#: Seconds for it to listen.
START_TIMEOUT = 15.0
CONFIGURATION = """\
[databases]
* = host={host} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
{more}
"""


@contextmanager
def pgbouncer(database_url: str, *, user: str, more: str) -> Iterator[int]:
    """The port of one in transaction mode before this server, to which everybody is `user`.

    more  further lines of its configuration
    """
    host, port = parse_qs(urlsplit(database_url).query)["host"][0], free_port()
    with tempfile.TemporaryDirectory(prefix="oversold-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "pgbouncer.ini"
        file.write_text(CONFIGURATION.format(host=host, user=user, port=port, more=more))
        owner = Path(host).stat().st_uid if os.getuid() == 0 else None  # it refuses root
        server = ServerProcess("PgBouncer", folder / "log")
        embedded.adopt(server.start([PROGRAM or "pgbouncer", file], user=owner))

        def listens() -> bool:
            with socket.create_connection(("127.0.0.1", port), 1):
                return True

        try:
            server.wait_until(listens, timeout=START_TIMEOUT)
            yield port
        finally:
            server.stop()


@pytest.fixture(scope="module", autouse=True)
def _both_are_installed() -> None:
    missing = "" if PROGRAM else "PgBouncer is not installed: apt-get install pgbouncer"
    if not shutil.which("redis-server"):
        missing = "a Redis with TLS is not installed: apt-get install redis-server"
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@pytest.fixture
def certificates() -> Iterator[Path]:
    """Of the compose stack, readable by the servers' users: files of one test."""
    with tempfile.TemporaryDirectory(prefix="oversold-tls-") as folder:
        made = Path(folder)
        make_secrets(made)
        for file in (*made.glob("postgres/*.*"), *made.glob("nginx/*"), made / "vault/ca.crt"):
            shutil.copy(file, made)
            (made / file.name).chmod(0o644)
        made.chmod(0o755)
        yield made


@contextmanager
def redis_with_tls(certificates: Path) -> Iterator[str]:
    """Its URL, without what to trust. Its certificate is for 127.0.0.1, and signed by itself."""
    port = free_port()
    process = subprocess.Popen(
        [
            *("redis-server", "--bind", "127.0.0.1", "--port", "0", "--tls-port", str(port)),
            *("--tls-cert-file", certificates / "tls.crt", "--tls-auth-clients", "no"),
            *("--tls-key-file", certificates / "tls.key"),
            *("--tls-ca-cert-file", certificates / "tls.crt", "--save", ""),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=certificates,
        start_new_session=True,
    )
    embedded.adopt(process.pid)
    url = f"rediss://127.0.0.1:{port}"
    try:
        with redis.Redis.from_url(url, ssl_ca_certs=str(certificates / "tls.crt")) as client:
            eventually(lambda: _answers(client), what="Redis speaks TLS")
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_every_strategy_sells_behind_pgbouncer(certificates: Path, tmp_path: Path) -> None:
    """Without SHOP_DB_POOLER: FATAL: unsupported startup parameter: options."""
    tls = (
        "client_tls_sslmode = require\n"
        f"client_tls_cert_file = {certificates / 'postgres.crt'}\n"
        f"client_tls_key_file = {certificates / 'postgres.key'}\n"
    )
    with (
        roles_of_compose(tmp_path / "roles") as roles,
        pgbouncer(roles.url(roles.app), user=roles.app, more=tls) as port,
        redis_with_tls(certificates) as locks,
    ):
        as_named = f"{roles.app}@postgres:{port}/{roles.database}?hostaddr=127.0.0.1"
        verified = f"sslmode=verify-full&sslrootcert={certificates / 'ca.crt'}"
        node = Node(
            tmp_path / "log",
            database_url=f"postgresql://{as_named}&{verified}",
            redis_url=f"{locks}/0?ssl_ca_certs={certificates / 'tls.crt'}",
            environment={"SHOP_DB_POOLER": "1"},
        )
        with node:
            timeouts = node.get("/readyz")[1]["parts"][-1]
            for name, value in TIMEOUTS_MS.items():
                assert f"{name} {value} ms" in timeouts["detail"]
            for lock in LOCKS:
                assert rush(node, lock) == (UNITS, 0), lock
