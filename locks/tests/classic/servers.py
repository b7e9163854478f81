"""Real servers for the tests, each in a session of its own and ended by its own pid."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...testing.server import binary, eventually, free_port

#: Where Debian's package puts ZooKeeper.
ZOOKEEPER = Path("/usr/share/java/zookeeper.jar")
TICK = 0.25


class Server:
    """A server process on a loopback port that can be stopped, killed, paused and started again."""

    def __init__(self, command: Callable[[int], list[str]]) -> None:
        self.port = free_port()
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(self) -> None:
        self._stopped = False
        self._process = subprocess.Popen(
            self._command(self.port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for pytest, which then stops it
        )
        eventually(self._answers, within=15.0)

    def ensure(self) -> None:
        """Start it if it is not running."""
        if self._process is None:
            self.start()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self._process.args!r} ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def send(self, signum: int) -> None:
        """Send the signal. After SIGSTOP all of its threads have stopped: none answers any more."""
        if self._process is None:
            return
        self._process.send_signal(signum)
        if signum == signal.SIGSTOP and not self._stopped:
            os.waitpid(self._process.pid, os.WUNTRACED)
        self._stopped = signum == signal.SIGSTOP

    def kill(self) -> None:
        """End it at once; its data is lost. A second time does nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Valkey(Server):
    """Redis or Valkey without persistence; `binary()` says which."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            lambda port: [
                *(binary(), "--port", str(port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--dir", str(folder)),
            ]
        )

    def pause(self) -> None:
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)


def client_of(port: int, *, timeout: float = 2.0) -> redis.Redis:
    """A client as the locks want it: it does not retry by itself, and it gives up."""
    return redis.Redis(
        host="127.0.0.1",
        port=port,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
    )


class ZooKeeper(Server):
    """Debian's ZooKeeper, one server, with sessions as short as it allows."""

    def __init__(self, folder: Path) -> None:
        self._config = folder / "zoo.cfg"
        super().__init__(self._prepare)

    @staticmethod
    def missing() -> str:
        """What is not there, with the remedy; empty when all is."""
        if shutil.which("java") is None or not ZOOKEEPER.exists():
            return "no ZooKeeper here; apt-get install --no-install-recommends zookeeper"
        return ""

    def _answers(self) -> bool:
        """Its port is open before it serves; a client that is sent away then comes back late."""
        if not super()._answers():
            return False
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return connection.recv(4096).startswith(b"Zookeeper version")
        except OSError:
            return False

    def _prepare(self, port: int) -> list[str]:
        self._config.write_text(
            f"tickTime={round(TICK * 1000)}\n"
            f"dataDir={self._config.parent / 'data'}\n"
            f"clientPort={port}\n"
            "clientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
        )
        options = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *options, "-cp", str(ZOOKEEPER), main, str(self._config)]


def in_ci() -> bool:
    return bool(os.environ.get("CI"))
