"""The privileges of the shop's role in PostgreSQL, and of its user in Redis.

The privileges suffice to sell under every strategy, but not to do anything that the shop never
does.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import psycopg
import pytest
import redis
from django.conf import settings
from psycopg import sql
from psycopg.errors import InsufficientPrivilege
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.retry import Retry

from servers import embedded
from servers.waiting import wait_for
from shop.strategies import STRATEGIES
from shop.tests.least_privilege import Roles, ValkeyWithAcl, create_compose_roles
from shop.tests.node import UNITS, Node, rush


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """A database with the roles of the compose stack, for all tests of this module."""
    with create_compose_roles(tmp_path_factory.mktemp("secrets")) as roles:
        yield roles


@pytest.fixture
def app_connection(roles: Roles) -> Iterator[psycopg.Connection[Any]]:
    """A connection to PostgreSQL with the role of the shop."""
    with psycopg.connect(roles.url(roles.app), autocommit=True) as connection:
        yield connection


def test_shops_role_cannot_change_schema_or_history(
    app_connection: psycopg.Connection[Any],
) -> None:
    """The shop's role may add and read orders, but not change or delete them, nor the schema.

    It also may not become another role, and may not use PostgreSQL's functions for administrators.
    """
    for statement in (
        "CREATE TABLE mine (id int)",
        "CREATE TEMP TABLE mine (id int)",
        "CREATE SCHEMA mine",
        "CREATE PUBLICATION mine FOR ALL TABLES",
        "CREATE ROLE mine",
        "SET ROLE postgres",
        "DROP TABLE purchase_history",
        "TRUNCATE purchase_history",
        "DELETE FROM product",
        "ALTER TABLE product DROP CONSTRAINT product_amount_not_negative",
        "ALTER TABLE purchase_history DISABLE TRIGGER ALL",
        "UPDATE purchase_history SET purchaser = 'me'",
        "DELETE FROM purchase_history",
        "UPDATE product SET name = 'pear'",
        "UPDATE shop_sale SET initial_stock = 1000",
        "DELETE FROM shop_sale",
        "DELETE FROM django_admin_log",
        "DELETE FROM django_migrations",
        "INSERT INTO auth_user (username) VALUES ('me')",
        "UPDATE auth_user SET is_superuser = true",
        "SET session_replication_role = replica",
        "COPY product TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'",
        "ALTER SYSTEM SET max_connections = 1",
    ):
        with pytest.raises(InsufficientPrivilege):
            app_connection.execute(statement)


def test_shops_role_owns_nothing_and_no_role_is_a_superuser(
    roles: Roles, app_connection: psycopg.Connection[Any]
) -> None:
    """The shop's role owns no table, and cannot become the owner.

    Neither role is a superuser, or has another attribute, such as CREATEDB.
    """
    with pytest.raises(InsufficientPrivilege):
        app_connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(roles.owner)))
    owned_tables = app_connection.execute(
        "SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole"
    ).fetchone()
    assert owned_tables == (0,)
    role_attributes = app_connection.execute(
        "SELECT rolname, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls"
        " FROM pg_roles WHERE rolname = ANY(%s) ORDER BY rolname",
        [[roles.app, roles.owner]],
    ).fetchall()
    assert role_attributes == [
        (name, False, False, False, False, False) for name in (roles.app, roles.owner)
    ]


def test_table_without_a_grant_is_an_error(roles: Roles) -> None:
    """A table that grant_role does not know stops the command before it grants anything."""
    with psycopg.connect(roles.url(roles.owner), autocommit=True) as owner:
        owner.execute("CREATE TABLE coupon (id int)")
        try:
            completed = roles.manage("grant_role", roles.app)
        finally:
            owner.execute("DROP TABLE coupon")
    assert completed.returncode == 1
    assert completed.stderr == (
        f"CommandError: nothing was granted to {roles.app}: "
        "GRANTS in shop.management.commands.grant_role has no entry for coupon: add one\n"
    )


def test_owner_keeps_its_privileges(roles: Roles) -> None:
    """grant_role refuses the role that owns the tables, and does not change its privileges.

    The command replaces a role's privileges by those of the shop, which are fewer.
    """
    completed = roles.manage("grant_role", roles.owner)
    assert completed.returncode == 1
    assert completed.stderr == (
        f"CommandError: nothing was granted to {roles.owner}: the owner of the shop's tables would "
        "lose its privileges: give the role that the shop's DATABASE_URL names\n"
    )
    with psycopg.connect(roles.url(roles.owner)) as owner:
        owner.execute("UPDATE purchase_history SET purchaser = purchaser")


def test_unknown_role_is_an_error(roles: Roles) -> None:
    completed = roles.manage("grant_role", f"unknown_{secrets.token_hex(4)}")
    assert completed.returncode == 1
    assert "does not exist" in completed.stderr
    assert "Traceback" not in completed.stderr


# --- the admin's forms ----------------------------------------------------------------------------

PASSWORD = "a-long-enough-one"
NEW_PASSWORD = "another-long-enough-one"


class Browser:
    """An HTTP client that stores cookies, follows redirects, and sends the CSRF token with forms.

    Its methods return the status and the path of the last answer, after all redirects.
    """

    def __init__(self, node: Node) -> None:
        self.url = f"http://127.0.0.1:{node.port}"
        self.cookies = CookieJar()
        self.opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(self.cookies))

    def get(self, path: str) -> tuple[int, str]:
        return self._open(Request(self.url + path))

    def post(self, path: str, **fields: str) -> tuple[int, str]:
        """Send a form with these fields and the CSRF token."""
        tokens = [cookie.value or "" for cookie in self.cookies if cookie.name == "csrftoken"]
        form = urlencode({**fields, "csrfmiddlewaretoken": tokens[0]}).encode()
        return self._open(Request(self.url + path, form))

    def log_in(self, password: str) -> tuple[int, str]:
        """Log in to the admin as the user `clerk`."""
        self.get("/admin/login/")
        return self.post("/admin/login/", username="clerk", password=password, next="/admin/")

    def _open(self, request: Request) -> tuple[int, str]:
        try:
            with self.opener.open(request, timeout=20) as response:
                return response.status, urlsplit(response.url).path
        except HTTPError as refusal:
            with refusal:
                return refusal.code, urlsplit(refusal.url).path


def test_admin_forms_work_under_the_shops_role(roles: Roles, tmp_path: Path) -> None:
    """The shop's role has every privilege that the admin's pages and forms need.

    For example, a clerk can log in and change the password.
    """
    owner_environment = {
        "DATABASE_URL": roles.url(roles.owner),
        "DJANGO_SUPERUSER_EMAIL": "clerk@example.com",
        "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
    }
    subprocess.run(
        [sys.executable, "manage.py", "createsuperuser", "--no-input", "--username=clerk"],
        cwd=settings.BASE_DIR,
        env={**os.environ, **owner_environment},
        check=True,
        capture_output=True,
    )
    node = Node(
        tmp_path / "log", database_url=roles.url(roles.app), redis_url=os.environ["REDIS_URL"]
    )
    with node:
        browser = Browser(node)
        assert browser.log_in("wrong") == (200, "/admin/login/")
        assert browser.log_in(PASSWORD) == (200, "/admin/")
        for model in ("sale", "product", "purchasehistory"):
            assert browser.get(f"/admin/shop/{model}/")[0] == 200
            assert browser.post(f"/admin/shop/{model}/")[0] == 200
            for page in ("add/", "1/change/", "1/delete/"):
                assert browser.post(f"/admin/shop/{model}/{page}")[0] in (302, 403, 404), page
        for model in ("user", "group"):
            assert browser.post(f"/admin/auth/{model}/add/")[0] == 404
        path = "/admin/password_change/"
        form = {"old_password": PASSWORD, "new_password1": "1", "new_password2": "1"}
        assert browser.post(path, **form) == (200, path), "the weak password is refused"
        form |= {"new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD}
        assert browser.post(path, **form) == (200, f"{path}done/")
        assert browser.post("/admin/logout/")[0] == 200
        assert browser.log_in(PASSWORD) == (200, "/admin/login/")
        assert browser.log_in(NEW_PASSWORD) == (200, "/admin/")
    assert "Traceback" not in node.log.read_text()


@contextmanager
def run_settle_command(node: Node) -> Iterator[None]:
    """Run `manage.py settle` with the node's environment until the block ends.

    Under the strategy `reserve` Redis sells the units, and this command writes the orders to the
    database later.
    """
    with node.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "settle"],
            cwd=settings.BASE_DIR,
            env={**node.environment, "SHOP_DB_POOL": "1"},
            stdout=log,
            stderr=log,
        )
        try:
            has_started = wait_for(
                lambda: "writing the orders of promises" in node.log.read_text(), timeout=60
            )
            # Before the command has logged this line, a SIGTERM would make it exit with an error.
            assert has_started, node.log.read_text()
            yield
        finally:
            process.terminate()
            assert process.wait(20) == 0


#: The environment of a node in production, without SHOP_LOCK.
PRODUCTION = {"SHOP_DEMO": "0", "BUY_RATE_LIMIT": "1000/10s", "METRICS_TOKEN": "m" * 32}
#: The ACL, the strategies that must sell under it, and additional environment of the node.
#: `zookeeper` is left out, because it uses no Redis.
SALES_UNDER_ACLS: list[tuple[str, list[str], dict[str, str]]] = [
    ("demo", [name for name in STRATEGIES if name != "zookeeper"], {}),
    ("production", ["redis"], {**PRODUCTION, "SHOP_LOCK": "redis"}),
    ("production", ["one-file"], {**PRODUCTION, "SHOP_LOCK": "one-file"}),
    ("production", ["lock-then-claim"], {**PRODUCTION, "SHOP_LOCK": "lock-then-claim"}),
    ("counter", ["counter"], {**PRODUCTION, "SHOP_LOCK": "counter"}),
    ("reserve", ["reserve"], {**PRODUCTION, "SHOP_LOCK": "reserve"}),
]


@pytest.mark.parametrize(("acl", "locks", "environment"), SALES_UNDER_ACLS)
def test_strategies_sell_under_the_roles_and_the_acl(
    acl: str, locks: list[str], environment: dict[str, str], roles: Roles, tmp_path: Path
) -> None:
    """The shop's role and Redis user have every privilege that the strategies need.

    acl          the Redis users come from deploy/docker/redis.<acl>.acl
    locks        the strategies under which buyers buy
    environment  more environment variables of the node
    """
    valkey = ValkeyWithAcl(tmp_path / "valkey", acl=acl)
    embedded.kill_at_exit(valkey.start())
    # Five databases of one Valkey take the place of Redlock's five servers.
    redlock_urls = [f"{valkey.url}/{number}" for number in range(2, 7)]
    try:
        node = Node(
            tmp_path / "log",
            database_url=roles.url(roles.app),
            redis_url=f"{valkey.url}/0",
            environment={"REDLOCK_URLS": ",".join(redlock_urls), **environment},
        )
        consumer = run_settle_command(node) if "reserve" in locks else nullcontext()
        with node, consumer:
            for lock in locks:
                orders, stock_left = rush(node, lock)
                if STRATEGIES[lock].rush_verdict == "exact":
                    assert (orders, stock_left) == (UNITS, 0), lock
                else:  # the strategy is known to oversell in a rush
                    assert orders >= UNITS, lock
            parts = {part["name"]: part["ok"] for part in node.get("/readyz")[1]["parts"]}
            assert all(parts.values()), parts
            assert ("promises" in parts) == (acl == "reserve")
            if acl == "demo":  # the page shows the sale of the last strategy
                assert node.get("/state")[1]["sale"]["orders"] == orders
        log = node.log.read_text().lower()
        assert "noperm" not in log
        assert "permission" not in log
    finally:
        valkey.stop()


# --- redis.production.acl: commands that the shop may not run -------------------------------------


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyWithAcl]:
    """A Valkey with the users of deploy/docker/redis.production.acl."""
    server = ValkeyWithAcl(tmp_path_factory.mktemp("valkey"), acl="production")
    embedded.kill_at_exit(server.start())
    yield server
    server.stop()


@pytest.fixture
def shop_client(valkey: ValkeyWithAcl) -> Iterator[redis.Redis]:
    """A Redis client that is logged in as the shop's user."""
    with redis.Redis.from_url(f"{valkey.url}/1", retry=Retry(NoBackoff(), 0)) as client:
        yield client


def test_unneeded_command_is_refused(shop_client: redis.Redis) -> None:
    """The shop's Redis user may not run commands that the shop never sends."""
    for command in (
        "KEYS *",
        "SCAN 0",
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB 0 1",
        "RENAME lock:a lock:b",
        "CONFIG SET maxmemory 1",
        "CONFIG GET requirepass",
        "ACL LIST",
        "ACL SETUSER shop +@all",
        "CLIENT KILL TYPE normal",
        "CLIENT LIST",
        "SHUTDOWN NOSAVE",
        "REPLICAOF 127.0.0.1 1",
        "SCRIPT FLUSH",
        "SCRIPT KILL",
        "FUNCTION FLUSH",
        "MODULE LIST",
        "MONITOR",
        "SAVE",
        "PSUBSCRIBE *",
        "PUBSUB CHANNELS",
        "GETSET lock:a b",
    ):
        with pytest.raises(NoPermissionError):
            shop_client.execute_command(*command.split())


def test_foreign_key_or_channel_is_refused(shop_client: redis.Redis) -> None:
    """The shop's Redis user may use only the keys and channels of the shop."""
    for command in (
        "GET secret",
        "SET lockpick 1",
        "DEL stock:{1}",
        "GET page:steps",
        "SUBSCRIBE __keyspace@0__:lock",
        "SUBSCRIBE lock:awake",
        "PUBLISH lock:elsewhere x",
        "EVAL return(redis.call('get','secret')) 0",
        "EVAL return(redis.call('get',KEYS[1])) 1 secret",
        "EVAL return(redis.call('flushall')) 0",
    ):
        with pytest.raises(redis.ResponseError, match=r"(?i)permission|acl"):
            shop_client.execute_command(*command.split())


@pytest.mark.parametrize("login", ["", "default:@", "shop:wrong@", "health:any@"])
def test_other_logins_cannot_read_keys(login: str, valkey: ValkeyWithAcl) -> None:
    """Only the user `shop` can read keys. The user `health` may send PING, with any password."""
    url = f"redis://{login}127.0.0.1:{valkey.port}"
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
        if login.startswith("health"):
            assert client.ping()
        with pytest.raises((AuthenticationError, NoPermissionError)):
            client.get("lock:a")
