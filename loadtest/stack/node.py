"""A node of the shop: an application server, and an order consumer.

The consumer (`manage.py settle`) writes promised orders to the database: orders that the shop has
accepted in Redis under some strategies.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

import psutil

from loadtest.stack.client import Shop
from servers import embedded
from servers.embedded import ROOT
from servers.loopback import find_free_port
from servers.process import STOP_TIMEOUT_SECONDS, ServerProcess

#: How long to wait for a node's first answer after its start.
START_TIMEOUT_SECONDS = 30.0


class StackError(RuntimeError):
    """The run is not possible as requested. The message says what to do, or which log to read."""


def make_child_environment() -> dict[str, str]:
    """Return the environment for processes that this process starts in ROOT.

    The user's environment may contain options for Locust (LOCUST_*), which are left out. Only
    LOCUST_ALLOWED_HOSTS belongs to this project, and stays. PYTHONSAFEPATH is left out, too: with
    it `python -m` would not find this project's packages.
    """

    def is_left_out(name: str) -> bool:
        is_locust_option = name.startswith("LOCUST_") and name != "LOCUST_ALLOWED_HOSTS"
        return is_locust_option or name == "PYTHONSAFEPATH"

    return {name: text for name, text in os.environ.items() if not is_left_out(name)}


def run_manage_py(*arguments: str, environment: Mapping[str, str], log: IO[bytes]) -> None:
    """Run `manage.py` with these arguments, and write its output to the log.

    Raises StackError if the command fails.
    """
    completed = subprocess.run(
        [sys.executable, "manage.py"] + list(arguments),
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    if completed.returncode:
        raise StackError(f"manage.py {arguments[0]} failed; see {log.name}")


def list_process_tree(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants.

    Raises psutil.NoSuchProcess if the process has ended.
    """
    process = psutil.Process(pid)
    return [process] + process.children(recursive=True)


class ShopNode:
    """A gunicorn master with its workers, and an optional order consumer.

    The master has its own session, so that the terminal's Ctrl-C does not reach it, and its process
    group can be killed as a whole.

    preferred_port  the port to use if it is free; otherwise, or if it is 0, any free port
    server          the gunicorn master
    order_consumer  the process (`manage.py settle`) that writes promised orders to the database; a
                    node has none before start_order_consumer()
    """

    def __init__(
        self, name: str, *, environment: dict[str, str], log: IO[bytes], preferred_port: int = 0
    ) -> None:
        self.name = name
        self.port = find_free_port(preferred_port)
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment
        self.server = ServerProcess(f"node {name}", log)
        self.order_consumer = ServerProcess(f"consumer {name}", log)
        self._should_start_order_consumer = False  # whether start() starts the order consumer, too

    def make_command(self) -> list[str]:
        """Return the command that starts gunicorn, the node's server."""
        command = [sys.executable, "-m", "gunicorn", "-c", "python:shop.gunicorn_conf"]
        return command + ["--bind", f"127.0.0.1:{self.port}"]

    def start(self) -> None:
        """Start the server without waiting for it.

        The order consumer is started, too, if start_order_consumer() was called before.
        """
        pid = self.server.start(self.make_command(), folder=ROOT, environment=self.environment)
        embedded.kill_at_exit(pid)
        if self._should_start_order_consumer:
            self._start_order_consumer_process()

    def start_order_consumer(self) -> None:
        """Start an order consumer (`manage.py settle`) for this node, unless one runs."""
        self._should_start_order_consumer = True
        if self.order_consumer.process is None:
            self._start_order_consumer_process()

    def kill_order_consumer(self) -> None:
        """Kill the order consumer with SIGKILL. start_order_consumer() starts it again.

        Until then the consumers of other nodes write the orders that were promised at this node.
        """
        self.order_consumer.stop(first_signal=signal.SIGKILL)

    def _start_order_consumer_process(self) -> None:
        """Start the order consumer, `manage.py settle`.

        It writes the orders that the strategy `reserve` has promised to its buyers: the units are
        reserved in Redis, and the orders are not in the database yet.
        """
        command = [sys.executable, "manage.py", "settle"]
        environment = {**self.environment, "SHOP_DB_POOL": "1"}  # a consumer has one thread
        embedded.kill_at_exit(
            self.order_consumer.start(command, folder=ROOT, environment=environment)
        )

    def wait_until_ready(self, shop: Shop) -> None:
        """Wait until the node reports on /readyz that it is ready. Raises NotReady."""
        self.server.wait_until(shop.read_readyz, timeout=START_TIMEOUT_SECONDS)

    def why_ended(self) -> str:
        """Return how the server or the consumer ended by itself; empty if neither did."""
        return self.server.why_ended() or self.order_consumer.why_ended()

    def terminate(self) -> None:
        """Send SIGTERM to both processes without waiting for them."""
        self.server.terminate()
        self.order_consumer.terminate()

    def kill(self) -> None:
        """Kill all processes of the node, as if its machine failed. start() starts them again."""
        for server in (self.server, self.order_consumer):
            if server.process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(server.process.pid, signal.SIGKILL)
                server.process.wait()

    def stop(self, timeout: float = STOP_TIMEOUT_SECONDS) -> None:
        """Send SIGTERM to both processes, and wait at most `timeout` seconds for each of them.

        A process that does not end in this time is killed, with all processes of its group.
        """
        self.order_consumer.terminate()
        self.server.stop(timeout)
        self.order_consumer.stop(timeout)
