"""A real Sentinel that watches a master, and fails over when it is asked to."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import redis

from .server import Server, eventually

#: The master's name in its configuration.
MASTER = "locks"


class Sentinel(Server):
    """One, which decides alone. Three of them are what a real installation has."""

    def __init__(self, folder: Path, master: Server) -> None:
        self.folder = folder
        self.master = master
        super().__init__()

    def start(self) -> None:
        """Start it, and wait until it knows its master and a replica to promote."""
        config = self.folder / f"sentinel-{self.port}.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {self.master.port} 1\n"
            f"sentinel down-after-milliseconds {MASTER} 1000\n"
        )
        self.process = subprocess.Popen(
            [self.binary, str(config), "--sentinel"],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd=self.folder,
        )
        try:
            eventually(self._is_ready, within=20)
        except BaseException:
            self.kill()
            raise

    def fail_over(self) -> None:
        """Promote the replica; return when the Sentinel names it as the master."""
        before = self._ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        eventually(self._is_accepted, within=20)
        eventually(
            lambda: self._ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER) != before, within=20
        )

    def _is_accepted(self) -> bool:
        """Refused as long as the replica has not said enough about itself."""
        try:
            return bool(self._ask("SENTINEL", "FAILOVER", MASTER))
        except redis.ResponseError:
            return False

    def _is_ready(self) -> bool:
        try:
            replicas = self._ask("SENTINEL", "REPLICAS", MASTER)
        except redis.RedisError:
            return False
        return any(b"ok" in bytes(str(each), "utf-8") for each in replicas)

    def _ask(self, *command: str) -> Any:
        with redis.Redis(port=self.port) as client:
            run: Any = client.execute_command
            return run(*command)
