"""A ZooKeeper of the run's own, from Debian's package, where there is one."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import IO

from servers.ports import free_port

#: Where Debian's package puts it.
JAR = Path("/usr/share/java/zookeeper.jar")
#: Milliseconds; a session's timeout is kept between 2 and 20 of them.
TICK = 500
START_TIMEOUT = 30.0


def is_installed() -> bool:
    """Whether there is one to start: apt-get install --no-install-recommends zookeeper."""
    return shutil.which("java") is not None and JAR.exists()


class ZooKeeper:
    """One server on a free port of 127.0.0.1, in a session of its own, its data in `folder`."""

    def __init__(self, folder: Path, *, log: IO[bytes]) -> None:
        self.folder = folder
        self.log = log
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> int:
        """Start it; its pid. It answers a moment later."""
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK}\n"
            f"dataDir={self.folder / 'zookeeper'}\n"
            f"clientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
        )
        small = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._process = subprocess.Popen(
            ["java", *small, "-cp", str(JAR), main, str(config)],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until it serves: its port is open before that. Raises TimeoutError."""
        deadline = time.monotonic() + START_TIMEOUT
        while not self._serves():
            if time.monotonic() > deadline:
                raise TimeoutError(f"ZooKeeper did not start; see {self.log.name}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it; nothing happens if it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return connection.recv(4096).startswith(b"Zookeeper version")
        except OSError:
            return False
