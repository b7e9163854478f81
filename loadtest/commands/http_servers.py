"""make http-servers: slow clients and a restart against the shop's HTTP and others.

The same slow clients that loadtest/tests/test_slow_clients.py sends to the nodes, so that the
choice of the server can be reviewed. Leaves results/<time>/http-servers.json and .md;
`make readme` puts the table into docs/http-servers.md. uvicorn and granian are measured where they
are installed (.venv/bin/pip install uvicorn granian); the shop does not need them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from typing import IO, Any

from loadtest.commands.run import Progress
from loadtest.commands.terminal import console as console_on_stdout
from loadtest.http import restarts, slow_clients
from loadtest.http.slow_clients import CROWDS, HEALTH, PAGES, PURCHASE, post_buy
from loadtest.stack.node import Node, StackError
from loadtest.stack.results import RESULTS, now, result_folder
from loadtest.stack.stack import Stack

THREADS = 100
BUYERS, STOCK = 200, 100
#: Seconds of selling before the node is asked to stop, and how often that is done.
SELLING, RESTARTS = 1.0, 2
WSGI, ASGI = "shop.wsgi:application", "django.core.asgi:get_asgi_application"


@dataclass(frozen=True)
class Program:
    """What serves a node: a module to run, and its arguments. {port} is filled in."""

    module: str
    arguments: Sequence[str] = ()

    def command(self, port: int) -> list[str]:
        given = [argument.format(port=port) for argument in self.arguments]
        return [sys.executable, "-m", self.module, *given]


def gunicorn(*arguments: str, app: str = WSGI) -> Program:
    """gunicorn as the shop configures it, but for these arguments."""
    usual = ("-c", "python:shop.gunicorn_conf", "--bind", "127.0.0.1:{port}")
    return Program("gunicorn", (*usual, *arguments, app))


POOLED_CLOSE = "loadtest.http.pooled_close.PooledCloseWorker"
SERVERS = {
    "waitress in gunicorn (the shop's)": gunicorn(),
    "gunicorn gthread": gunicorn("--worker-class", "gthread"),
    "gunicorn gthread, close in the pool": gunicorn("--worker-class", POOLED_CLOSE),
    "gunicorn asgi": gunicorn("--worker-class", "asgi", app=f"{ASGI}()"),
    "uvicorn": Program("uvicorn", ("--port", "{port}", "--factory", ASGI)),
    "granian, WSGI": Program(
        "granian",
        ("--port", "{port}", "--blocking-threads", str(THREADS), "--interface", "wsgi", WSGI),
    ),
}
#: Column heads.
HEADS = {
    **{name: f"{crowd.size} {name.replace('-', ' ')}" for name, crowd in CROWDS.items()},
    "last_byte_s": "last byte at once, s",
    "rush_s": "rush, s",
    "lost": "SIGTERM: sent and not answered",
}


class OtherServer(Node):
    """A node of one process that one of SERVERS serves."""

    program = gunicorn()

    def command(self) -> list[str]:
        return self.program.command(self.port)


class ServerStack(Stack):
    """One node of one process behind one of SERVERS."""

    def __init__(self, server: str, *, log: IO[bytes], lock_wait: float) -> None:
        super().__init__(nodes=1, workers=1, threads=THREADS, log=log)
        self.lock_wait = lock_wait
        self.node_class = type("Served", (OtherServer,), {"program": SERVERS[server]})

    def _environment(self) -> dict[str, str]:
        own = {"SHOP_LOCK_WAIT": str(self.lock_wait), "WEB_GRACEFUL_TIMEOUT": "10"}
        return super()._environment() | own


def measure(server: str, log: IO[bytes]) -> dict[str, Any]:
    """Every figure of one server; in milliseconds, how long any other client waited at
    most; None: the server did not answer.

    Raises StackError when it does not start.
    """
    found: dict[str, Any] = {"server": server}
    with ServerStack(server, log=log, lock_wait=20) as stack:
        for product in ("apple", "queue"):
            stack.shop().restock(product=product, stock=100_000)
        for name in CROWDS:
            questions = [HEALTH, *PAGES, *([] if name == "waiting-buyers" else [PURCHASE])]
            if name == "waiting-buyers":
                found |= _bursts(stack)
            with CROWDS[name].at(stack.nodes[0].port):
                worst = max(slow_clients.worst_answers(stack.nodes[0].port, questions).values())
            found[name] = None if math.isinf(worst) else round(worst * 1000)
    with ServerStack(server, log=log, lock_wait=6) as stack:
        stack.shop().restock(product="apple", stock=1_000_000)
        found |= _restarts(stack)
    return found


def _bursts(stack: Stack) -> dict[str, float]:
    """Seconds of a rush of buyers who keep their connections, and of the last-byte-sync attack."""
    port = stack.nodes[0].port
    rush = slow_clients.rush_seconds(port, _buyers(stack))
    sync = slow_clients.last_byte_sync(port, _buyers(stack), timeout=15).seconds
    return {"rush_s": round(rush, 2), "last_byte_s": round(sync, 2)}


def _buyers(stack: Stack) -> list[bytes]:
    sale = stack.shop().restock(product="apple", stock=STOCK)["sale"]
    return [
        post_buy({"buyer": f"b{n}", "lock": "redis"}, close=True, key=f"{sale}/{n}")
        for n in range(BUYERS)
    ]


def _restarts(stack: Stack) -> dict[str, int]:
    """How many purchases were sent, and how many of them were not answered."""
    node = stack.nodes[0]
    with restarts.Customers(node.port) as customers:
        for _ in range(RESTARTS):
            time.sleep(SELLING)
            node.stop(15)
            node.start()
            node.wait_until_ready(stack.shop())
    return {"lost": len(customers.lost), "sent": len(customers.lost) + len(customers.outcomes)}


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """The table: a line per server."""
    lines = [
        f"| one process, {THREADS} threads | {' | '.join(HEADS.values())} |",
        f"|---|{'--:|' * len(HEADS)}",
    ]
    for one in found:
        cells = [
            *("dead" if one[name] is None else f"{one[name]} ms" for name in CROWDS),
            *(f"{one[name]:.2f}" for name in ("last_byte_s", "rush_s")),
            f"{one['lost']} of {one['sent']}",
        ]
        lines.append(f"| {one['server']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def where() -> str:
    """The versions and the machine, as a line under the table."""
    modules = sorted({"waitress", *(program.module for program in SERVERS.values())})
    there = [module for module in modules if importlib.util.find_spec(module) is not None]
    versions = ", ".join(f"{module} {metadata.version(module)}" for module in there)
    return f"{versions}; Python {platform.python_version()}, {os.cpu_count()} CPUs."


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.commands.http_servers", description=__doc__
    )
    parser.add_argument("server", nargs="*", help=f"a part of one of: {', '.join(SERVERS)}")
    wanted = parser.parse_args().server
    console = console_on_stdout()
    with ExitStack() as everything:
        progress = everything.enter_context(Progress(console, verbose=False))
        folder = everything.enter_context(result_folder(now()))
        found = []
        for server, program in SERVERS.items():
            if wanted and not any(part in server for part in wanted):
                continue
            if importlib.util.find_spec(program.module) is None:
                console.print(f"{server}: not installed: .venv/bin/pip install {program.module}")
                continue
            progress(server)
            try:
                found.append(measure(server, folder.log))
            except StackError as error:
                console.print(f"{server}: {error}", highlight=False)
        (folder.path / "http-servers.json").write_text(json.dumps(found, indent=1) + "\n")
        (folder.path / "http-servers.md").write_text(f"{markdown(found)}\n{where()}\n")
        kept = folder.finish()
    console.print(markdown(found), highlight=False, soft_wrap=True)
    console.print(f"{kept.relative_to(RESULTS.parent)}/http-servers.json", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
