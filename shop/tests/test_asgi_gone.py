"""Clients of a real asgi node who leave while a page is made for them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from servers.valkey import Valkey
from shop.tests.node import node_at
from shop.tests.till import eventually

CONNECTIONS = 3
WAITING_FOR_THE_TABLE = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest.mark.parametrize("server", ["asgi", "gthread"])
def test_a_page_whose_client_is_gone_gives_its_connection_back(
    folder: Path, valkey: Valkey, server: str
) -> None:
    """Left in a thread that has ended it would be lost to the pool, and the node with the last."""
    pool = str(CONNECTIONS)
    with (
        node_at(folder / "gone.log", valkey=valkey, WEB_SERVER=server, SHOP_DB_POOL=pool) as node,
        psycopg.connect(node.environment["DATABASE_URL"]) as other,
    ):
        node.restock(5)
        with other.transaction():
            other.execute("LOCK TABLE product IN ACCESS EXCLUSIVE MODE")
            with ExitStack() as clients:
                for _ in range(CONNECTIONS):
                    client = socket.create_connection(("127.0.0.1", node.port), timeout=5)
                    clients.enter_context(client)
                    client.sendall(b"GET /sales/latest HTTP/1.1\r\nHost: localhost\r\n\r\n")
                eventually(
                    lambda: other.execute(WAITING_FOR_THE_TABLE).fetchone() == (CONNECTIONS,),
                    what="all wait for the table",
                )
            assert node.get("/healthz")[0] == 200  # it has noticed by now that they are gone
        assert node.get("/sales/latest")[0] == 200
