"""The shop behind PgBouncer in transaction mode: it starts, sells right, and its timeouts hold."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from servers import embedded
from servers.embedded import ROOT
from shop.ops.postgres import TIMEOUTS_MS
from shop.strategies import STRATEGIES
from shop.tests import servers
from shop.tests.node import Node
from shop.tests.pgbouncer import PgBouncer
from shop.tests.rush import UNITS, rush

#: Those of the database, and some that hold their lock or their stock in Redis.
LOCKS = [
    *(name for name, one in STRATEGIES.items() if one.backend == "postgresql"),
    *("token", "redis", "counter"),
]
#: What does not survive: the row of docs/scale.md, and the test that shows it.
BROKEN = {
    "a session's advisory lock": "test_a_sessions_advisory_lock_has_two_holders",
    "the same, its client gone": "test_a_sessions_advisory_lock_outlives_its_client",
    "`SET statement_timeout`": "test_a_setting_of_a_session_reaches_another_client",
}


@pytest.fixture(scope="module", autouse=True)
def _pgbouncer_is_installed() -> None:
    if why := PgBouncer.missing():
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="module")
def database() -> Iterator[tuple[str, str]]:
    """An empty database and the role that owns it, without any timeout of its own."""
    name = f"oversold_pooled_{secrets.token_hex(4)}"
    url = embedded.create_database(name)
    role = sql.Identifier(name)
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        admin.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(role, role))
        yield url, name
        admin.execute(sql.SQL("ALTER DATABASE {} OWNER TO postgres").format(role))
        admin.execute(sql.SQL("REASSIGN OWNED BY {} TO postgres").format(role))
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(sql.SQL("REASSIGN OWNED BY {} TO postgres").format(role))
        owner.execute(sql.SQL("DROP ROLE {}").format(role))


@contextmanager
def role_brings(role: str, timeouts: dict[str, int]) -> Iterator[None]:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        for name, value in timeouts.items():
            admin.execute(
                sql.SQL("ALTER ROLE {} SET {} = {}").format(
                    sql.Identifier(role), sql.Identifier(name), sql.Literal(value)
                )
            )
        try:
            yield
        finally:
            admin.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(sql.Identifier(role)))


def pooled_node(tmp_path: Path, pooler: PgBouncer) -> Node:
    node = Node(tmp_path / "log", database_url=pooler.url, redis_url=servers.valkey.url)
    node.environment["SHOP_DB_POOLER"] = "1"
    return node


def test_a_node_starts_and_every_strategy_sells_right_and_the_roles_timeouts_hold(
    database: tuple[str, str], tmp_path: Path
) -> None:
    """Without SHOP_DB_POOLER: FATAL: unsupported startup parameter: options."""
    url, role = database
    with (
        role_brings(role, TIMEOUTS_MS),
        PgBouncer(url, user=role) as pooler,
        pooled_node(tmp_path, pooler) as node,
    ):
        timeouts = node.get("/readyz")[1]["parts"][-1]
        assert timeouts["ok"], timeouts
        for name, value in TIMEOUTS_MS.items():
            assert f"{name} {value} ms" in timeouts["detail"]
        for lock in LOCKS:
            assert rush(node, lock) == (UNITS, 0), lock


def test_readyz_says_so_where_the_timeouts_do_not_hold(
    database: tuple[str, str], tmp_path: Path
) -> None:
    """`ignore_startup_parameters = options` is what is often advised: the node would start, and
    a stuck holder would never be ended."""
    url, role = database
    with PgBouncer(url, user=role, more="ignore_startup_parameters = options") as pooler:
        node = pooled_node(tmp_path, pooler)
        node.is_ready = lambda: node_answers(node)  # type: ignore[method-assign]
        with node:
            status, body = node.get("/readyz")
    assert status == 503
    assert [part["ok"] for part in body["parts"]] == [True, True, True, True, False]
    for name, value in TIMEOUTS_MS.items():
        assert f"ALTER ROLE ... SET {name} = {value}" in body["parts"][-1]["detail"]


def node_answers(node: Node) -> bool:
    try:
        return node.get("/healthz")[0] == 200
    except OSError:
        return False


# --- what outlives a transaction does not survive ------------------------------------------------


@pytest.fixture
def one_server_connection(database: tuple[str, str]) -> Iterator[PgBouncer]:
    """A pooler with one connection to the server, so that two clients certainly share it."""
    url, role = database
    with PgBouncer(url, user=role, more="max_user_connections = 1") as pooler:
        yield pooler


def client(pooler: PgBouncer) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(pooler.url, autocommit=True)


def value(connection: psycopg.Connection[tuple[object, ...]], query: str) -> object:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_a_sessions_advisory_lock_has_two_holders(one_server_connection: PgBouncer) -> None:
    with client(one_server_connection) as first, client(one_server_connection) as second:
        assert value(first, "SELECT pg_try_advisory_lock(42)") is True
        assert value(second, "SELECT pg_try_advisory_lock(42)") is True


def test_an_advisory_lock_of_a_transaction_has_one(one_server_connection: PgBouncer) -> None:
    """Beside it, by the way that the strategy `advisory` takes: the second client waits until the
    first has committed, for the pooler has no other connection for it."""
    with client(one_server_connection) as first, client(one_server_connection) as second:
        with first.transaction():
            assert value(first, "SELECT pg_try_advisory_xact_lock(42)") is True
            mine = value(first, "SELECT pg_backend_pid()")
        assert value(second, "SELECT pg_backend_pid()") == mine
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {}"
        assert value(second, held.format(mine)) == 0


def test_a_sessions_advisory_lock_outlives_its_client(
    one_server_connection: PgBouncer, database: tuple[str, str]
) -> None:
    with client(one_server_connection) as gone:
        gone.execute("SELECT pg_advisory_lock(43)")
    with psycopg.connect(database[0], autocommit=True) as beside:
        assert value(beside, "SELECT pg_try_advisory_lock(43)") is False


def test_a_setting_of_a_session_reaches_another_client(one_server_connection: PgBouncer) -> None:
    with client(one_server_connection) as first, client(one_server_connection) as second:
        first.execute("SET statement_timeout = 1234")
        assert value(second, "SHOW statement_timeout") == "1234ms"


def test_the_page_says_what_these_tests_show() -> None:
    section = (ROOT / "docs/scale.md").read_text().split("\n## PgBouncer")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (exact|broken)[^|]* \| .+ \|$", section, re.MULTILINE)
    assert dict(rows) == {
        **{f"`{lock}`": "exact" for lock in LOCKS},
        **dict.fromkeys(BROKEN, "broken"),
    }
    assert set(BROKEN.values()) <= set(globals())
