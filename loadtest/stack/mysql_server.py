"""Checks of the MySQL or MariaDB server of DATABASE_URL before a run."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from loadtest.stack import mysql_client
from loadtest.stack.databases import DATABASES
from loadtest.stack.node import StackError
from servers import mariadb

CONNECT_TIMEOUT_SECONDS = 5.0
#: Connections besides those of the nodes' threads: for migrations, and for this check.
SPARE_CONNECTIONS = 10
#: Server -> a collation that treats different idempotency keys as different.
RECOMMENDED_COLLATIONS = {"MySQL": "utf8mb4_0900_bin", "MariaDB": "utf8mb4_nopad_bin"}
#: Pairs of idempotency keys that a collation must treat as different: they differ in capitals, in
#: an accent, and in a space at the end.
SIMILAR_KEYS = (("key", "KEY"), ("key", "k\u00e9y"), ("key", "key "))
#: Number of a connection error -> its cause and its cure, a format string for parts of the URL.
CONNECTION_ERRORS: Mapping[int, str] = {
    1040: "the server has no connection left: SET GLOBAL max_connections = {connections}",
    1044: "user {user!r} may not use the database {name!r}: GRANT ALL ON {name}.* TO {user}",
    1045: "the server refuses the user {user!r}: correct the user and the password of DATABASE_URL",
    1049: "there is no database {name!r}: CREATE DATABASE {name} COLLATE utf8mb4_0900_bin, on "
    "MariaDB utf8mb4_nopad_bin",
    2003: "no server answers at {address}: start it, or correct DATABASE_URL",
}
#: Query for the collations of idempotency keys in the database's existing tables.
KEY_COLLATIONS_QUERY = """
    SELECT collation_name FROM information_schema.columns
    WHERE table_schema = DATABASE() AND column_name = 'idempotency_key'
"""


def require_server(url: str, database_key: str, *, threads: int) -> None:
    """Raise StackError unless a run can use the server of a DATABASE_URL.

    The message says what the user can do.

    database_key  the key in DATABASES of the run's database
    threads       number of threads in all nodes together; each thread keeps a connection
    """
    connections = threads + SPARE_CONNECTIONS
    with closing(_connect(url, connections)) as connection, connection.cursor() as cursor:
        require_expected_server(_query_value(cursor, "SELECT VERSION()"), database_key)
        limit = int(_query_value(cursor, "SELECT @@max_connections"))
        if limit < connections:
            raise StackError(
                f"max_connections of the server is {limit}, and the run may need {connections} "
                f"connections: SET GLOBAL max_connections = {connections}, or choose fewer buyers"
            )
        schema = urlsplit(url).path.lstrip("/")
        _require_collation(cursor, schema, RECOMMENDED_COLLATIONS[DATABASES[database_key].server])


def _connect(url: str, connections: int) -> Any:
    """Return a connection to the server of a DATABASE_URL.

    Raises StackError if the connection fails. The message says what the user can do.

    connections  the number of connections that the run may need, for the message
    """
    try:
        import pymysql
    except ImportError as error:
        raise StackError(mariadb.CLIENT_MISSING) from error
    parts = urlsplit(url)
    try:
        return mysql_client.connect(url, timeout_seconds=CONNECT_TIMEOUT_SECONDS)
    # A ValueError is raised if the port is not a number. A RuntimeError is raised if a password has
    # to be sent without TLS and the package cryptography is not installed. Only the arguments of a
    # MySQLError begin with an error number.
    except (pymysql.MySQLError, ValueError, RuntimeError) as error:
        number = error.args[0] if error.args else 0
        cure = CONNECTION_ERRORS.get(number, "correct DATABASE_URL").format(
            address=parts.netloc.rpartition("@")[2] or "localhost",
            connections=connections,
            name=parts.path.lstrip("/"),
            user=parts.username or "",
        )
        raise StackError(f"DATABASE_URL: {cure}\n{error}") from error


def _query_value(cursor: Any, query: str, *values: str) -> Any:
    """Return the first value of a query's first row, or None if there are no rows."""
    cursor.execute(query, values or None)
    row = cursor.fetchone()
    return row[0] if row else None


def require_expected_server(version: str, database_key: str) -> None:
    """Raise StackError if the server is MySQL but the run is for MariaDB, or vice versa.

    version       the server's answer to SELECT VERSION()
    database_key  the key in DATABASES of the run's database
    """
    server = "MariaDB" if "MariaDB" in version else "MySQL"
    database = DATABASES[database_key]
    if server == database.server:
        return
    _, separator, mode = database_key.partition("@")
    same_mode = f"{server.lower()}{separator}{mode}"
    cure = f"add --database {same_mode}"
    if same_mode not in DATABASES:
        cure = f"only {database.server} has this mode; choose another --database"
    raise StackError(
        f"DATABASE_URL points to {server} {version}, but the expected verdicts are those of "
        f"{database.title}: {cure}"
    )


def _require_collation(cursor: Any, schema: str, recommended_collation: str) -> None:
    """Raise StackError unless the database can store and distinguish all idempotency keys.

    This depends on the collation of the existing tables, or of the database if it has no tables.

    schema  the name of the database
    """
    cursor.execute(KEY_COLLATIONS_QUERY)
    collations = [collation for (collation,) in cursor.fetchall()]
    has_tables = bool(collations)
    if not has_tables:
        collations = [_query_value(cursor, "SELECT @@collation_database")]
    unusable_collations = [
        collation for collation in collations if not _distinguishes_keys(cursor, collation)
    ]
    if not unusable_collations:
        return
    cure = f"ALTER DATABASE {schema} CHARACTER SET utf8mb4 COLLATE {recommended_collation}"
    if has_tables:
        cure = f"drop its tables, then {cure}"
    raise StackError(
        f"the collation of the database {schema} is {unusable_collations[0]}: it treats "
        "idempotency keys that differ in capitals, in an accent or in a space at the end as equal, "
        f"or cannot store some keys: {cure}"
    )


def _distinguishes_keys(cursor: Any, collation: str) -> bool:
    """Return whether a collation can store all idempotency keys, and distinguishes SIMILAR_KEYS."""
    if not collation.startswith("utf8mb4_"):  # other character sets cannot store every key
        return False
    comparison = f"SELECT CONVERT(%s USING utf8mb4) COLLATE {collation} = %s"
    return not any(_query_value(cursor, comparison, *pair) for pair in SIMILAR_KEYS)
