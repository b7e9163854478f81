"""Three Sentinels that watch a Redis master and promote its replica if the master fails.

    sentinels = Sentinels(folder, master.port, log)
    for pid in sentinels.start():
        embedded.kill_at_exit(pid)
    sentinels.wait_until_ready()          # start a replica of the master first
    environment["REDIS_SENTINELS"] = sentinels.addresses

If `master_port` is the port of a proxy, the Sentinels and their clients use the proxy.
"""

import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import redis

from servers.loopback import find_free_port
from servers.process import ServerProcess
from servers.valkey import client_at, find_binary

#: The name of the master in the configuration of the Sentinels.
MASTER = "shop"
SENTINEL_COUNT = 3
#: Number of Sentinels that must agree that the master is down.
QUORUM_COUNT = 2
#: Time after which a Sentinel considers a silent master down.
DOWN_AFTER_MILLISECONDS = 1000
#: A Sentinel tries again after twice this time if a failover has failed.
FAILOVER_TIMEOUT_MILLISECONDS = 3000
#: Time limit for each Sentinel in wait_until_ready().
START_TIMEOUT_SECONDS = 30.0


class Sentinels:
    """Three Sentinels on free ports of 127.0.0.1.

    folder       the folder of their configuration files, which they rewrite themselves
    master_port  port of the master, or of a proxy in front of the master, on 127.0.0.1
    log          the file of their output
    """

    def __init__(self, folder: Path, master_port: int, log: IO[bytes]) -> None:
        self.folder = folder
        self.master_port = master_port
        self.log = log
        self.ports: list[int] = []
        self._processes: list[ServerProcess] = []

    @property
    def addresses(self) -> str:
        """The value of REDIS_SENTINELS: host:port,host:port,host:port."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self) -> list[int]:
        """Start the Sentinels and return their pids. Call wait_until_ready() before using them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ports = [find_free_port() for _ in range(SENTINEL_COUNT)]
        pids = []
        for port in self.ports:
            config = self.folder / f"sentinel-{port}.conf"
            config.write_text(
                f"port {port}\n"
                "bind 127.0.0.1\n"
                f'dir "{self.folder}"\n'
                f"sentinel monitor {MASTER} 127.0.0.1 {self.master_port} {QUORUM_COUNT}\n"
                f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MILLISECONDS}\n"
                f"sentinel failover-timeout {MASTER} {FAILOVER_TIMEOUT_MILLISECONDS}\n"
            )
            sentinel = ServerProcess(f"the Sentinel on port {port}", self.log)
            self._processes.append(sentinel)
            pids.append(sentinel.start([find_binary(), config, "--sentinel"]))
        return pids

    def wait_until_ready(self) -> None:
        """Wait until each Sentinel sees the master, a replica in sync and the other Sentinels.

        Raises NotReady.
        """
        advice = f"start a replica of the master on port {self.master_port} first"
        for port, sentinel in zip(self.ports, self._processes, strict=True):
            is_ready = partial(_is_ready, port)
            sentinel.wait_until(is_ready, timeout=START_TIMEOUT_SECONDS, advice=advice)

    def find_master(self) -> tuple[str, int]:
        """Return the host and port of the master, according to the first Sentinel that names one.

        Raises LookupError if no Sentinel answers with a master.
        """
        for port in self.ports:
            with suppress(redis.RedisError, OSError), client_at(port, timeout=1) as sentinel:
                # sentinel_get_master_addr_by_name() of redis-py 6.4 raises TypeError.
                address = sentinel.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", MASTER)
                if address:
                    return str(address[0]), int(address[1])
        addresses = self.addresses or "any port"
        raise LookupError(f"no Sentinel on {addresses} knows a master; see {self.log.name}")

    def stop(self) -> None:
        """Kill the Sentinels. Nothing happens if they do not run."""
        for process in self._processes:
            process.stop(first_signal=signal.SIGKILL)
        self._processes.clear()


def _is_ready(port: int) -> bool:
    """Return whether this Sentinel sees the master, a replica in sync and the other Sentinels."""
    with client_at(port, timeout=1) as sentinel:
        master: Any = sentinel.info("sentinel")["master0"]  # there is only one master
        replicas: Any = sentinel.sentinel_slaves(MASTER)
    has_replica_in_sync = any(replica["master-link-status"] == "ok" for replica in replicas)
    sees_all_sentinels = master["sentinels"] == SENTINEL_COUNT
    return master["status"] == "ok" and sees_all_sentinels and has_replica_in_sync
