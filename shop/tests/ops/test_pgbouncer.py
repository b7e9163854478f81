"""The shop behind PgBouncer in transaction mode, with TLS to PgBouncer and to Redis.

The shop verifies both certificates, and sells no unit too many or too few. Other tests use servers
from Python wheels, which have no TLS. In this test PgBouncer terminates TLS in front of PostgreSQL,
and Redis is Debian's package.
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
from servers.loopback import find_free_port
from servers.process import ServerProcess
from shop.ops.postgres import TIMEOUTS_MS
from shop.strategies import STRATEGIES
from shop.tests.least_privilege import create_compose_roles, make_secrets
from shop.tests.node import UNITS, Node, rush
from shop.tests.purchases import eventually

#: All strategies that guard the stock in PostgreSQL, and some that guard it in Redis.
TESTED_STRATEGIES = [
    name for name, strategy in STRATEGIES.items() if strategy.backend == "postgresql"
] + ["token", "redis", "counter"]

#: PgBouncer's path. Debian installs it in a folder that may be missing from a user's PATH.
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
#: Maximum time until PgBouncer listens.
START_TIMEOUT_SECONDS = 15.0
PGBOUNCER_CONFIGURATION = """\
[databases]
* = host={host} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
{more_settings}
"""
#: The paths of the certificate's files are relative to Redis's working directory.
REDIS_CONFIGURATION = """\
bind 127.0.0.1
port 0
tls-port {port}
tls-cert-file tls.crt
tls-key-file tls.key
tls-ca-cert-file tls.crt
tls-auth-clients no
save ""
"""


@contextmanager
def run_pgbouncer(database_url: str, *, user: str, more_settings: str) -> Iterator[int]:
    """Run PgBouncer in transaction mode in front of PostgreSQL, and yield PgBouncer's port.

    database_url   a URL of PostgreSQL
    user           the PostgreSQL role with which PgBouncer connects
    more_settings  further lines of PgBouncer's configuration
    """
    socket_folder = parse_qs(urlsplit(database_url).query)["host"][0]
    port = find_free_port()
    with tempfile.TemporaryDirectory(prefix="oversold-pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = folder / "pgbouncer.ini"
        file.write_text(
            PGBOUNCER_CONFIGURATION.format(
                host=socket_folder, user=user, port=port, more_settings=more_settings
            )
        )
        # PgBouncer refuses to run as root. If this process is root, PgBouncer runs as the owner of
        # PostgreSQL's socket folder.
        owner = Path(socket_folder).stat().st_uid if os.getuid() == 0 else None
        server = ServerProcess("PgBouncer", folder / "log")
        assert PGBOUNCER is not None
        embedded.kill_at_exit(server.start([PGBOUNCER, file], user=owner))

        def is_listening() -> bool:
            with socket.create_connection(("127.0.0.1", port), 1):
                return True

        try:
            server.wait_until(is_listening, timeout=START_TIMEOUT_SECONDS)
            yield port
        finally:
            server.stop()


@pytest.fixture(scope="module", autouse=True)
def _require_pgbouncer_and_redis() -> None:
    """Skip the tests of this module if a server is not installed. In CI they fail instead."""
    problem = "" if PGBOUNCER else "PgBouncer is not installed: apt-get install pgbouncer"
    if not shutil.which("redis-server"):
        problem = "a Redis with TLS is not installed: apt-get install redis-server"
    if problem and os.environ.get("CI"):
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)


@pytest.fixture
def certificates() -> Iterator[Path]:
    """A folder with the certificates and keys of the compose stack.

    The users under which the servers run can read the files.
    """
    with tempfile.TemporaryDirectory(prefix="oversold-tls-") as name:
        folder = Path(name)
        make_secrets(folder)
        files = [folder / "vault/ca.crt"]
        files += folder.glob("postgres/*.*")
        files += folder.glob("nginx/*")
        for file in files:
            shutil.copy(file, folder)
            (folder / file.name).chmod(0o644)
        folder.chmod(0o755)
        yield folder


@contextmanager
def run_redis_with_tls(certificates: Path) -> Iterator[str]:
    """Run Redis with TLS and yield its URL. Its certificate for 127.0.0.1 is self-signed."""
    port = find_free_port()
    process = subprocess.Popen(
        ["redis-server", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=certificates,
        start_new_session=True,
    )
    embedded.kill_at_exit(process.pid)
    assert process.stdin is not None
    process.stdin.write(REDIS_CONFIGURATION.format(port=port).encode())
    process.stdin.close()
    url = f"rediss://127.0.0.1:{port}"
    try:
        with redis.Redis.from_url(url, ssl_ca_certs=str(certificates / "tls.crt")) as client:
            eventually(lambda: _is_answering(client), what="Redis answers over TLS")
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _is_answering(client: redis.Redis) -> bool:
    """Return whether Redis answers PING."""
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_strategies_sell_behind_pgbouncer(certificates: Path, tmp_path: Path) -> None:
    """A node with SHOP_DB_POOLER=1 sells exactly through PgBouncer, with the role's timeouts.

    Without SHOP_DB_POOLER the shop would send the libpq parameter `options`, which PgBouncer
    refuses.
    """
    tls_settings = (
        "client_tls_sslmode = require\n"
        f"client_tls_cert_file = {certificates / 'postgres.crt'}\n"
        f"client_tls_key_file = {certificates / 'postgres.key'}\n"
    )
    with (
        create_compose_roles(tmp_path / "roles") as roles,
        run_pgbouncer(roles.url(roles.app), user=roles.app, more_settings=tls_settings) as port,
        run_redis_with_tls(certificates) as redis_url,
    ):
        # The certificate is for the host `postgres`, which has no address on this machine.
        login = f"{roles.app}@postgres:{port}/{roles.database}?hostaddr=127.0.0.1"
        verification = f"sslmode=verify-full&sslrootcert={certificates / 'ca.crt'}"
        node = Node(
            tmp_path / "log",
            database_url=f"postgresql://{login}&{verification}",
            redis_url=f"{redis_url}/0?ssl_ca_certs={certificates / 'tls.crt'}",
            environment={"SHOP_DB_POOLER": "1"},
        )
        with node:
            timeouts = node.get("/readyz")[1]["parts"][-1]
            for name, value in TIMEOUTS_MS.items():
                assert f"{name} {value} ms" in timeouts["detail"]
            for lock in TESTED_STRATEGIES:
                assert rush(node, lock) == (UNITS, 0), lock
