"""The choice of a run's database, and the checks of a user's own server."""

import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from loadtest.stack import mysql_client
from loadtest.stack.databases import DATABASES, POSTGRES, choose_database, with_parameters
from loadtest.stack.mysql_server import require_expected_server, require_server
from loadtest.stack.node import StackError
from servers import mariadb
from servers.mariadb import MariaDB
from servers.tests.running_mariadb import running_mariadb

MYSQL = "mysql://root@localhost/shop"
THREADS = 40


@pytest.mark.parametrize(
    ("name", "url", "database"),
    [
        ("sqlite", "", "sqlite"),
        (POSTGRES, "postgresql://localhost/shop", POSTGRES),
        (POSTGRES, MYSQL, "mysql"),
        (POSTGRES, f"{MYSQL}?unix_socket=/x&isolation_level=read-committed", "mysql"),
        (POSTGRES, f"{MYSQL}?isolation_level=repeatable-read", "mysql@repeatable-read"),
        (POSTGRES, f"{MYSQL}?isolation_level=repeatable-read&snapshot=on", "mariadb@snapshot"),
        (POSTGRES, "sqlite:////x/shop.db", "sqlite"),
        (POSTGRES, "sqlite:////x/shop.db?transaction_mode=DEFERRED", "sqlite@deferred"),
        ("mysql@repeatable-read", MYSQL, "mysql@repeatable-read"),
        ("mariadb", MYSQL, "mariadb"),
    ],
)
def test_database_is_that_of_the_option_or_of_the_url(name: str, url: str, database: str) -> None:
    assert choose_database(name, url) == database
    assert choose_database(database, url) == database


@pytest.mark.parametrize(
    ("name", "url", "message"),
    [
        ("mysql", "", "needs a server of yours: set DATABASE_URL=mysql://"),
        ("sqlite", MYSQL, "unset DATABASE_URL, or leave --database out"),
        ("mysql", "postgresql://localhost/shop", "unset DATABASE_URL, or leave --database out"),
        (POSTGRES, f"{MYSQL}?isolation_level=serializable", "isolation_level=serializable: remove"),
    ],
)
def test_contradiction_is_refused(name: str, url: str, message: str) -> None:
    with pytest.raises(StackError, match=message):
        choose_database(name, url)


def test_parameters_of_the_option_win() -> None:
    repeatable_read = DATABASES["mysql@repeatable-read"]
    url = with_parameters(f"{MYSQL}?unix_socket=/x&isolation_level=serializable", repeatable_read)
    assert url == f"{MYSQL}?unix_socket=/x&isolation_level=repeatable-read"
    url = f"{MYSQL}?isolation_level=repeatable-read&snapshot=on"
    assert with_parameters(url, DATABASES["mysql"]) == MYSQL
    assert with_parameters("sqlite:////x/shop.db", DATABASES["sqlite"]) == "sqlite:////x/shop.db"


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[MariaDB]:
    with running_mariadb() as server:
        yield server


def sql(server: MariaDB, statement: str) -> None:
    with closing(mysql_client.connect(server.url(), timeout_seconds=5)) as connection:
        connection.query(statement)


def test_server_that_fits_is_taken(mariadb_server: MariaDB) -> None:
    require_server(mariadb_server.url(), "mariadb@snapshot", threads=THREADS)


def test_too_few_connections_are_named(mariadb_server: MariaDB) -> None:
    with pytest.raises(StackError, match="SET GLOBAL max_connections = 2010"):
        require_server(mariadb_server.url(), "mariadb", threads=2000)


def test_another_server_than_the_options_is_named(mariadb_server: MariaDB) -> None:
    url = mariadb_server.url()
    with pytest.raises(StackError, match=r"MariaDB .*: add --database mariadb@repeatable-read"):
        require_server(url, "mysql@repeatable-read", threads=THREADS)


def test_missing_database_is_named(mariadb_server: MariaDB) -> None:
    url = mariadb_server.url().replace("/shop?", "/other?")
    with pytest.raises(StackError, match="no database 'other': CREATE DATABASE other COLLATE"):
        require_server(url, "mariadb", threads=THREADS)


def test_refused_user_is_named(mariadb_server: MariaDB) -> None:
    url = mariadb_server.url().replace("//root@", "//nobody@")
    with pytest.raises(StackError, match="refuses the user 'nobody': correct"):
        require_server(url, "mariadb", threads=THREADS)


def test_mode_that_the_server_lacks_is_named() -> None:
    """MySQL has no snapshot isolation, so no other value of --database would help."""
    with pytest.raises(StackError, match="only MariaDB has this mode"):
        require_expected_server("9.7.4", "mariadb@snapshot")


@pytest.mark.parametrize("has_table", [False, True])
@pytest.mark.parametrize(
    "collation",
    ["utf8mb4_general_ci", "utf8mb4_bin", "latin1_bin", "utf8mb4_uca1400_nopad_ai_cs"],
)
def test_collation_that_equates_keys_is_refused(
    mariadb_server: MariaDB, collation: str, has_table: bool
) -> None:
    """utf8mb4_bin ignores spaces at the end. A table keeps the collation with which it was made."""
    charset = collation.partition("_")[0]
    sql(mariadb_server, f"CREATE DATABASE keys_shop CHARACTER SET {charset} COLLATE {collation}")
    try:
        if has_table:
            table = "keys_shop.purchase_history (idempotency_key VARCHAR(64))"
            sql(mariadb_server, f"CREATE TABLE {table}")
            sql(mariadb_server, "ALTER DATABASE keys_shop COLLATE utf8mb4_nopad_bin")
        url = mariadb_server.url().replace("/shop?", "/keys_shop?")
        cure = "ALTER DATABASE keys_shop .*COLLATE utf8mb4_nopad_bin"
        with pytest.raises(StackError, match=f"is {collation}: .*{cure}") as refusal:
            require_server(url, "mariadb", threads=THREADS)
        assert ("drop its tables" in str(refusal.value)) == has_table
    finally:
        sql(mariadb_server, "DROP DATABASE keys_shop")


def test_missing_server_is_named() -> None:
    pytest.importorskip("pymysql", reason=mariadb.CLIENT_MISSING)
    with pytest.raises(StackError, match=r"no server answers at 127\.0\.0\.1:9: start it"):
        require_server("mysql://root@127.0.0.1:9/shop", "mysql", threads=THREADS)


def test_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(StackError, match="make install-mysql"):
        require_server(MYSQL, "mysql", threads=THREADS)
