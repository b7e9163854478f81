"""Connections of the load test to MySQL and MariaDB."""

from math import ceil
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


def connect(url: str, *, timeout_seconds: float) -> Any:
    """Connect to MySQL or MariaDB, and return a connection that commits each statement at once.

    url              mysql://user:password@host:port/database?unix_socket=/path
    timeout_seconds  timeout for connecting (rounded up to whole seconds), and for each reply

    Raises ImportError if PyMySQL is not installed, ValueError if the port is not a number, and
    pymysql.MySQLError if the connection fails.
    """
    import pymysql

    address = urlsplit(url)
    unix_socket = parse_qs(address.query).get("unix_socket", [None])[0]
    # A Unix socket needs no TLS. Preparing TLS would take 24 ms for each connection.
    is_tls_disabled = unix_socket is not None
    return pymysql.connect(
        host=address.hostname or "127.0.0.1",
        port=address.port or 3306,
        user=unquote(address.username or ""),
        password=unquote(address.password or ""),
        database=unquote(address.path.lstrip("/")),
        unix_socket=unix_socket,
        ssl_disabled=is_tls_disabled,
        connect_timeout=ceil(timeout_seconds),
        read_timeout=timeout_seconds,
        autocommit=True,
    )
