"""roles.sql and grant_role on a real PostgreSQL: what the shop's role may not do, and that
it sells under every strategy."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from shop.ops.postgres import TIMEOUTS_MS
from shop.strategies import STRATEGIES
from shop.tests.least_privilege import GuardedValkey, Roles, roles_of_compose
from shop.tests.node import Node
from shop.tests.rush import rush


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    with roles_of_compose(tmp_path_factory.mktemp("secrets")) as roles:
        manage(roles, "migrate", "--verbosity", "0")
        assert manage(roles, "grant_role", roles.app).stdout
        yield roles


def manage(roles: Roles, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *command, "--no-color"],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DATABASE_URL": roles.url(roles.owner)},
        capture_output=True,
        text=True,
        check=check,
    )


@pytest.fixture
def app(roles: Roles) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(roles.url(roles.app), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE mine (id int)",
        "CREATE TEMP TABLE mine (id int)",
        "CREATE SCHEMA mine",
        "CREATE PUBLICATION mine FOR ALL TABLES",
        "CREATE ROLE mine",
        "DROP TABLE purchase_history",
        "ALTER TABLE product DROP CONSTRAINT product_amount_not_negative",
        "ALTER TABLE purchase_history DISABLE TRIGGER ALL",
        "TRUNCATE purchase_history",
        "UPDATE purchase_history SET purchaser = 'me'",
        "DELETE FROM purchase_history",
        "DELETE FROM product",
        "DELETE FROM shop_sale",
        "UPDATE product SET name = 'pear'",
        "UPDATE shop_sale SET initial_stock = 1000",
        "INSERT INTO auth_user (username) VALUES ('me')",
        "UPDATE auth_user SET is_superuser = true",
        "DELETE FROM django_admin_log",
        "DELETE FROM django_migrations",
        "SET ROLE postgres",
        "SET session_replication_role = replica",
        "COPY product TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'",
        "ALTER SYSTEM SET max_connections = 1",
    ],
)
def test_the_shops_role_may_not(statement: str, app: psycopg.Connection[Any]) -> None:
    with pytest.raises(InsufficientPrivilege):
        app.execute(statement)


def test_the_shops_role_is_not_the_owner_and_neither_role_is_a_superuser(
    roles: Roles, app: psycopg.Connection[Any]
) -> None:
    with pytest.raises(InsufficientPrivilege):
        app.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(roles.owner)))
    owned = app.execute(
        "SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole"
    ).fetchone()
    assert owned == (0,)
    powers = app.execute(
        "SELECT rolname, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls"
        " FROM pg_roles WHERE rolname = ANY(%s) ORDER BY rolname",
        [[roles.app, roles.owner]],
    ).fetchall()
    assert powers == [(name, *[False] * 5) for name in (roles.app, roles.owner)]


def test_the_shops_role_brings_the_shops_timeouts(app: psycopg.Connection[Any]) -> None:
    asked = "SELECT name, setting::int FROM pg_settings WHERE name = ANY(%s)"
    assert dict(app.execute(asked, [list(TIMEOUTS_MS)]).fetchall()) == TIMEOUTS_MS


def test_a_table_of_which_the_grants_say_nothing_is_an_error_that_names_it(roles: Roles) -> None:
    with psycopg.connect(roles.url(roles.owner), autocommit=True) as owner:
        owner.execute("CREATE TABLE coupon (id int)")
        try:
            done = manage(roles, "grant_role", roles.app, check=False)
        finally:
            owner.execute("DROP TABLE coupon")
    assert done.returncode == 1
    assert done.stderr == (
        f"CommandError: nothing was granted to {roles.app}: "
        "say in shop/ops/db_role.py what the shop may do with: coupon\n"
    )


def test_a_role_that_does_not_exist_is_an_error(roles: Roles) -> None:
    done = manage(roles, "grant_role", f"nobody_{secrets.token_hex(4)}", check=False)
    assert done.returncode == 1
    assert "does not exist" in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def consumer_of(node: Node) -> Iterator[None]:
    """`manage.py settle` with the node's own roles."""
    with node.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "settle"],
            cwd=settings.BASE_DIR,
            env={**node.environment, "SHOP_DB_POOL": "1"},
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(20) == 0


def test_every_strategy_sells_right_under_the_roles_and_the_demos_acl(
    roles: Roles, tmp_path: Path
) -> None:
    """But ZooKeeper's, which has neither role nor ACL."""
    valkey = GuardedValkey(tmp_path / "valkey", acl="demo")
    valkey.start()
    try:
        node = Node(
            tmp_path / "log", database_url=roles.url(roles.app), redis_url=f"{valkey.url}/0"
        )
        databases = [f"{valkey.url}/{number}" for number in range(2, 7)]
        node.environment["REDLOCK_URLS"] = ",".join(databases)
        with node, consumer_of(node):
            for lock, strategy in STRATEGIES.items():
                if strategy.needs == "ZOOKEEPER_HOSTS":
                    continue
                orders, left = rush(node, lock)
                if strategy.rush == "exact":
                    assert (orders, left) == (5, 0), lock
                else:
                    assert orders >= 5, lock
            assert node.get("/state")[1]["sale"]["orders"] == orders
        assert "NOPERM" not in node.log.read_text()
        assert "permission denied" not in node.log.read_text()
    finally:
        valkey.stop()
