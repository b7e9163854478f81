"""ZooKeeper from Debian's package, if the package is installed."""

import shutil
import signal
import socket
from pathlib import Path
from typing import IO

from servers.loopback import find_free_port
from servers.process import ServerProcess

#: The library that Debian's package installs.
JAR = Path("/usr/share/java/zookeeper.jar")
MISSING = "ZooKeeper is not installed: apt-get install --no-install-recommends zookeeper"
#: ZooKeeper keeps a session's timeout between 2 and 20 ticks: from 1 to 10 s.
TICK_MILLISECONDS = 500
#: Time limit for the server to answer after its start.
START_TIMEOUT_SECONDS = 30.0


def is_installed() -> bool:
    """Return whether Java and ZooKeeper are installed. MISSING says how to install them."""
    return shutil.which("java") is not None and JAR.exists()


class ZooKeeper:
    """A ZooKeeper server on a free port of 127.0.0.1.

    folder  the folder of its configuration and data
    log     the file of its output
    """

    def __init__(self, folder: Path, *, log: IO[bytes]) -> None:
        self.folder = folder
        self.log = log
        self.port = find_free_port()
        self._process = ServerProcess("ZooKeeper", log)

    @property
    def hosts(self) -> str:
        """The server's address, as a ZooKeeper client takes it: host:port."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> int:
        """Start the server and return its pid. Call wait_until_ready() before using it."""
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK_MILLISECONDS}\n"
            f"dataDir={self.folder / 'zookeeper'}\n"
            f"clientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=srvr,cons\n"
        )
        command = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", str(JAR)]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        # Under LC_ALL=C Java fails in a working directory with "ü", so the caller's is not used.
        return self._process.start(command, folder=self.folder)

    def wait_until_ready(self) -> None:
        """Wait until the server answers a request. Raises EmbeddedError.

        ZooKeeper accepts connections before it answers requests.
        """
        self._process.wait_until(self._is_answering, timeout=START_TIMEOUT_SECONDS)

    def why_ended(self) -> str:
        """Return a message if the server ended by itself; otherwise an empty text."""
        return self._process.why_ended()

    def stop(self) -> None:
        """Kill the server. Nothing happens if it does not run."""
        self._process.stop(first_signal=signal.SIGKILL)

    def _is_answering(self) -> bool:
        """Return whether the server answers. Raises OSError if it does not listen."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return connection.recv(4096).startswith(b"Zookeeper version")
