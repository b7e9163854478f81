"""Every lock of the articles by name, made alike, so that one scenario can be run with each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import redis

from ...classic.process import ProcessLock
from ...classic.redlock import RedlockLock
from ...classic.reentrant import ReentrantLock
from ...classic.setnx import SetnxLock
from ...classic.setnx_expire import SetnxExpireLock
from ...classic.setnx_expire_lua import SetnxExpireLuaLock
from ...classic.setnx_expire_repair import SetnxExpireRepairLock
from ...classic.setnx_timestamp import SetnxTimestampLock
from ...classic.setnx_timestamp_del import SetnxTimestampDelLock
from ...classic.setpx_del import SetpxDelLock
from ...classic.token import TokenLock
from ...classic.token_get_del import TokenGetDelLock
from ...classic.token_watchdog import TokenWatchdogLock
from ...classic.zookeeper import ZookeeperLock, connect
from ...lock import Lock
from .servers import client_of

#: The session timeout of the tests' ZooKeeper clients, seconds.
SESSION = 1.0


@dataclass
class Backends:
    """The clients of one process, connected when they are first asked for."""

    port: int
    ports: list[int] = field(default_factory=list)
    zookeeper_port: int = 0

    @cached_property
    def client(self) -> redis.Redis:
        return client_of(self.port)

    @cached_property
    def clients(self) -> list[redis.Redis]:
        return [client_of(port) for port in self.ports]

    @cached_property
    def zookeeper(self) -> Any:
        return connect(f"127.0.0.1:{self.zookeeper_port}", ttl=SESSION)

    def close(self) -> None:
        made = self.__dict__
        for client in [*made.get("clients", []), *([self.client] if "client" in made else [])]:
            client.close()
        if "zookeeper" in made:
            self.zookeeper.stop()
            self.zookeeper.close()


RETRY = 0.01

KINDS: dict[str, Callable[[Backends, str, float], Lock]] = {
    "setnx": lambda b, name, ttl: SetnxLock(b.client, name, ttl=ttl, retry=RETRY),
    "setnx-expire": lambda b, name, ttl: SetnxExpireLock(b.client, name, ttl=ttl, retry=RETRY),
    "setnx-expire-repair": lambda b, name, ttl: SetnxExpireRepairLock(
        b.client, name, ttl=ttl, retry=RETRY
    ),
    "setnx-expire-lua": lambda b, name, ttl: SetnxExpireLuaLock(
        b.client, name, ttl=ttl, retry=RETRY
    ),
    "setnx-timestamp": lambda b, name, ttl: SetnxTimestampLock(
        b.client, name, ttl=ttl, retry=RETRY
    ),
    "setnx-timestamp-del": lambda b, name, ttl: SetnxTimestampDelLock(
        b.client, name, ttl=ttl, retry=RETRY
    ),
    "setpx-del": lambda b, name, ttl: SetpxDelLock(b.client, name, ttl=ttl, retry=RETRY),
    "token-get-del": lambda b, name, ttl: TokenGetDelLock(b.client, name, ttl=ttl, retry=RETRY),
    "token": lambda b, name, ttl: TokenLock(b.client, name, ttl=ttl, retry=RETRY),
    "token-watchdog": lambda b, name, ttl: TokenWatchdogLock(b.client, name, ttl=ttl, retry=RETRY),
    "reentrant": lambda b, name, ttl: ReentrantLock(b.client, name, ttl=ttl),
    "redlock": lambda b, name, ttl: RedlockLock(b.clients, name, ttl=ttl, retry=2 * RETRY),
    "zookeeper": lambda b, name, ttl: ZookeeperLock(b.zookeeper, name, ttl=max(ttl, SESSION)),
    "process": lambda b, name, ttl: ProcessLock(name, ttl=ttl),
}
