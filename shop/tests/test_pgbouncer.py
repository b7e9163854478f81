"""The shop behind PgBouncer in transaction mode: it starts, sells right, and its timeouts hold."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from servers import embedded
from shop.postgres import TIMEOUTS_MS
from shop.tests import servers
from shop.tests.node import Node
from shop.tests.pgbouncer import PgBouncer
from shop.tests.rush import UNITS, rush

LOCKS = [
    *("token", "redis", "advisory", "row-lock", "version"),
    *("rollback", "conditional", "serializable", "buckets", "skip-locked"),
]


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
