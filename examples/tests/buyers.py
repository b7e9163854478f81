"""Buyers for the tests of the examples.

A buyer runs in a thread that stops at each statement, or in another process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db import connection

from examples.models import Order
from shop.sale.points import point_reached

ROOT = Path(__file__).resolve().parents[2]


def with_points(buy: Callable[[], Order]) -> Callable[[], Order]:
    """Return `buy` with a point before each statement.

    At a point, an Interleaving can stop the buyer. The point is named after the statement:
    `SELECT`, `UPDATE product` or `INSERT order`.
    """

    def buy_with_points() -> Order:
        def send_point(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
            words = sql.replace('"', "").replace("INTO ", "").replace("examples_", "").split()
            name = "SELECT" if words[0] == "SELECT" else " ".join(words[:2])
            point_reached.send(name)
            return execute(sql, *rest)

        with connection.execute_wrapper(send_point):
            return buy()

    return buy_with_points


class BuyerProcess:
    """A process that buys on request (child.py)."""

    def __init__(self, module: str, product: int, *, ttl: float = 10.0) -> None:
        """Start the process, and wait until it is ready. `ttl` is the ttl of checkout's lock."""
        database = connection.get_connection_params()
        host = quote(str(database["host"]), safe="")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.tests.child", module, str(product), str(ttl)],
            cwd=ROOT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "shop.settings",
                "DATABASE_URL": f"postgresql://{database['user']}@/{database['dbname']}?host={host}",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read_reply() == "ready"

    def ask(self, **request: Any) -> None:
        """Send one request: the `name` of a buyer, or the number of `buyers` who buy together.

        A request without either lets a stopped buyer continue.
        """
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)

    def read_reply(self) -> Any:
        """Return the value that the process prints next, as JSON on one line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the buyer's process ended with {self.process.wait(5)}"
        return json.loads(line)

    def __enter__(self) -> BuyerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
