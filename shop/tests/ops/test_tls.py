"""The shop over TLS to PostgreSQL and Redis, whose certificates it checks.

The wheels' servers speak no TLS: PgBouncer ends it before PostgreSQL, Debian's Redis speaks it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from servers import embedded
from servers.loopback import free_port
from shop.tests.least_privilege import make_secrets
from shop.tests.node import Node
from shop.tests.pgbouncer import PgBouncer
from shop.tests.rush import rush
from shop.tests.till import eventually


@pytest.fixture(scope="module", autouse=True)
def _servers_with_tls_are_installed() -> None:
    missing = PgBouncer.missing()
    if not shutil.which("redis-server"):
        missing = "a Redis with TLS is not installed: apt-get install redis-server"
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="module")
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


@contextmanager
def postgres_with_tls(certificates: Path) -> Iterator[str]:
    """Its URL, without what to trust. Its certificate is for the name `postgres`."""
    more = (
        "ignore_startup_parameters = options\n"
        "client_tls_sslmode = require\n"
        f"client_tls_cert_file = {certificates / 'postgres.crt'}\n"
        f"client_tls_key_file = {certificates / 'postgres.key'}\n"
    )
    name = f"oversold_tls_{os.getpid()}"
    with PgBouncer(embedded.create_database(name), user="postgres", more=more) as pooler:
        port = urlsplit(pooler.url).port
        yield f"postgresql://postgres@postgres:{port}/{name}?hostaddr=127.0.0.1&sslmode=verify-full"


def test_the_shop_sells_over_tls_to_both_with_verified_certificates(
    certificates: Path, tmp_path: Path
) -> None:
    with postgres_with_tls(certificates) as database, redis_with_tls(certificates) as locks:
        node = Node(
            tmp_path / "log",
            database_url=f"{database}&sslrootcert={certificates / 'ca.crt'}",
            redis_url=f"{locks}/0?ssl_ca_certs={certificates / 'tls.crt'}",
        )
        node.is_ready = lambda: _sells(node)  # type: ignore[method-assign]
        with node:
            assert rush(node, "redis") == (5, 0)


def _sells(node: Node) -> bool:
    """/readyz but for the timeouts, which this PgBouncer drops."""
    try:
        return all(part["ok"] for part in node.get("/readyz")[1]["parts"][:4])
    except OSError:
        return False
