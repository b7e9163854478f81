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


def test_the_page_says_what_this_test_shows() -> None:
    section = (ROOT / "docs/scale.md").read_text().split("\n## PgBouncer")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| exact \| .+ \|$", section, re.MULTILINE)
    assert set(rows) == {f"`{lock}`" for lock in LOCKS}
