"""The choice of a run's database, and the checks of a server that the user provides.

A mode of a database, such as an isolation level, follows its name after `@`.
"""

import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from loadtest.stack import mysql_client
from loadtest.stack.databases import DATABASES, POSTGRES, choose_database, set_parameters
from loadtest.stack.mysql_server import (
    SPARE_CONNECTIONS,
    require_expected_server,
    require_server,
)
from loadtest.stack.node import StackError
from servers import mariadb
from servers.mariadb import MariaDB
from servers.tests.running_mariadb import running_mariadb

MYSQL_URL = "mysql://root@localhost/shop"
#: The threads of the nodes, each of which needs a connection. A server with default settings allows
#: more connections than these.
THREADS = 40


@pytest.mark.parametrize(
    ("option", "url", "expected"),
    [
        ("sqlite", "", "sqlite"),
        (POSTGRES, "postgresql://localhost/shop", POSTGRES),
        (POSTGRES, MYSQL_URL, "mysql"),
        (POSTGRES, f"{MYSQL_URL}?unix_socket=/x&isolation_level=read-committed", "mysql"),
        (POSTGRES, f"{MYSQL_URL}?isolation_level=repeatable-read", "mysql@repeatable-read"),
        (POSTGRES, f"{MYSQL_URL}?isolation_level=repeatable-read&snapshot=on", "mariadb@snapshot"),
        (POSTGRES, "sqlite:////x/shop.db", "sqlite"),
        (POSTGRES, "sqlite:////x/shop.db?transaction_mode=DEFERRED", "sqlite@deferred"),
        ("mysql@repeatable-read", MYSQL_URL, "mysql@repeatable-read"),
        ("mariadb", MYSQL_URL, "mariadb"),
    ],
)
def test_database_is_chosen_by_the_option_or_by_the_url(
    option: str, url: str, expected: str
) -> None:
    """If the option --database has its default, POSTGRES, DATABASE_URL decides.

    If the option and the URL agree on the database, they may both be given.
    """
    assert choose_database(option, url) == expected
    assert choose_database(expected, url) == expected


@pytest.mark.parametrize(
    ("option", "url", "message"),
    [
        ("mysql", "", "needs a server of yours: set DATABASE_URL=mysql://"),
        ("sqlite", MYSQL_URL, "unset DATABASE_URL, or leave --database out"),
        ("mysql", "postgresql://localhost/shop", "unset DATABASE_URL, or leave --database out"),
        (
            POSTGRES,
            f"{MYSQL_URL}?isolation_level=serializable",
            "isolation_level=serializable: remove",
        ),
    ],
)
def test_option_that_contradicts_the_url_is_refused(option: str, url: str, message: str) -> None:
    """A URL is also refused if it has an isolation level that --database does not offer."""
    with pytest.raises(StackError, match=message):
        choose_database(option, url)


def test_malformed_database_url_is_refused_without_its_password() -> None:
    with pytest.raises(StackError, match="DATABASE_URL is not a URL") as refusal:
        choose_database(POSTGRES, "postgres://shop:secret@[")
    assert "secret" not in str(refusal.value)


def test_mode_of_the_option_replaces_the_mode_of_the_url() -> None:
    """A mode is a group of URL parameters, such as the isolation level. Other parameters remain.

    The mode of `mysql` and `sqlite` has no parameters.
    """
    repeatable_read = DATABASES["mysql@repeatable-read"]
    url = set_parameters(
        f"{MYSQL_URL}?unix_socket=/x&isolation_level=serializable", repeatable_read
    )
    assert url == f"{MYSQL_URL}?unix_socket=/x&isolation_level=repeatable-read"
    url = f"{MYSQL_URL}?isolation_level=repeatable-read&snapshot=on"
    assert set_parameters(url, DATABASES["mysql"]) == MYSQL_URL
    assert set_parameters("sqlite:////x/shop.db", DATABASES["sqlite"]) == "sqlite:////x/shop.db"


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[MariaDB]:
    """Start a MariaDB with a database `shop`, as a user may provide it."""
    with running_mariadb() as server:
        yield server


def execute(server: MariaDB, statement: str) -> None:
    """Execute a SQL statement on the server."""
    with closing(mysql_client.connect(server.url(), timeout_seconds=5)) as connection:
        connection.query(statement)


def test_server_of_the_chosen_database_is_accepted(mariadb_server: MariaDB) -> None:
    require_server(mariadb_server.url(), "mariadb@snapshot", threads=THREADS)


def test_server_with_too_few_connections_is_refused(mariadb_server: MariaDB) -> None:
    too_many_threads = 2000
    needed_connections = too_many_threads + SPARE_CONNECTIONS
    with pytest.raises(StackError, match=f"SET GLOBAL max_connections = {needed_connections}"):
        require_server(mariadb_server.url(), "mariadb", threads=too_many_threads)


def test_mariadb_is_refused_if_the_option_names_mysql(mariadb_server: MariaDB) -> None:
    url = mariadb_server.url()
    with pytest.raises(StackError, match=r"MariaDB .*: add --database mariadb@repeatable-read"):
        require_server(url, "mysql@repeatable-read", threads=THREADS)


def test_missing_database_is_named_in_the_message(mariadb_server: MariaDB) -> None:
    url = mariadb_server.url().replace("/shop?", "/other?")
    with pytest.raises(StackError, match="no database 'other': CREATE DATABASE other COLLATE"):
        require_server(url, "mariadb", threads=THREADS)


def test_refused_user_is_named_in_the_message(mariadb_server: MariaDB) -> None:
    url = mariadb_server.url().replace("//root@", "//nobody@")
    with pytest.raises(StackError, match="refuses the user 'nobody': correct"):
        require_server(url, "mariadb", threads=THREADS)


def test_mode_that_only_mariadb_has_is_refused_on_mysql() -> None:
    """MySQL has no snapshot isolation."""
    mysql_version = "9.7.4"
    with pytest.raises(StackError, match="only MariaDB has this mode"):
        require_expected_server(mysql_version, "mariadb@snapshot")


@pytest.mark.parametrize("has_table", [False, True])
@pytest.mark.parametrize(
    "collation",
    ["utf8mb4_general_ci", "utf8mb4_bin", "latin1_bin", "utf8mb4_uca1400_nopad_ai_cs"],
)
def test_collation_unusable_for_keys_is_refused(
    mariadb_server: MariaDB, collation: str, has_table: bool
) -> None:
    """The database must store any idempotency key, and must not treat different keys as equal.

    latin1 cannot store every key, and utf8mb4_bin ignores spaces at the end.

    has_table  whether the database has a table with this collation. A table keeps its collation if
               that of the database is changed, so it must be dropped.
    """
    charset = collation.partition("_")[0]
    execute(
        mariadb_server, f"CREATE DATABASE keys_shop CHARACTER SET {charset} COLLATE {collation}"
    )
    try:
        if has_table:
            columns = "(idempotency_key VARCHAR(64))"
            execute(mariadb_server, f"CREATE TABLE keys_shop.purchase_history {columns}")
            execute(mariadb_server, "ALTER DATABASE keys_shop COLLATE utf8mb4_nopad_bin")
        url = mariadb_server.url().replace("/shop?", "/keys_shop?")
        advice = "ALTER DATABASE keys_shop .*COLLATE utf8mb4_nopad_bin"
        with pytest.raises(StackError, match=f"is {collation}: .*{advice}") as refusal:
            require_server(url, "mariadb", threads=THREADS)
        assert ("drop its tables" in str(refusal.value)) == has_table
    finally:
        execute(mariadb_server, "DROP DATABASE keys_shop")


def test_address_without_a_server_is_named_in_the_message() -> None:
    pytest.importorskip("pymysql", reason=mariadb.CLIENT_MISSING)
    with pytest.raises(StackError, match=r"no server answers at 127\.0\.0\.1:9: start it"):
        require_server("mysql://root@127.0.0.1:9/shop", "mysql", threads=THREADS)


def test_missing_client_package_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)  # with None, importing it fails
    with pytest.raises(StackError, match="make install-mysql"):
        require_server(MYSQL_URL, "mysql", threads=THREADS)
