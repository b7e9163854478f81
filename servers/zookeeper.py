"""ZooKeeper from Debian's package, where that is installed, as a process of its own."""

import shutil
import signal
import socket
from pathlib import Path
from typing import IO

from servers.loopback import free_port
from servers.process import ServerProcess

#: Installed by Debian's package.
JAR = Path("/usr/share/java/zookeeper.jar")
MISSING = "ZooKeeper is not installed: apt-get install --no-install-recommends zookeeper"
#: Milliseconds. ZooKeeper keeps a session's timeout between 2 and 20 ticks.
TICK = 500
#: Seconds for it to answer after its start.
START_TIMEOUT = 30.0


def is_installed() -> bool:
    """Whether Java and ZooKeeper are on this machine; MISSING says how to install them."""
    return shutil.which("java") is not None and JAR.exists()


class ZooKeeper:
    """One server on a free port of 127.0.0.1, in a session of its own.

    folder  for its configuration and data
    log     for its output
    """

    def __init__(self, folder: Path, *, log: IO[bytes]) -> None:
        self.folder = folder
        self.log = log
        self.port = free_port()
        self._process = ServerProcess("ZooKeeper", log)

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> int:
        """Start it and return its pid. It answers later: see wait_until_ready."""
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK}\n"
            f"dataDir={self.folder / 'zookeeper'}\n"
            f"clientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=srvr,cons\n"
        )
        small = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return self._process.start(["java", *small, "-cp", JAR, main, config])

    def wait_until_ready(self) -> None:
        """Wait until it answers requests; its port is open before that. Raises EmbeddedError."""
        self._process.wait_until(self._answers, timeout=START_TIMEOUT)

    def stop(self) -> None:
        """Kill it. Nothing happens if it does not run."""
        self._process.stop(how=signal.SIGKILL)

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return connection.recv(4096).startswith(b"Zookeeper version")
