"""misconf: Redis answers, and refuses every write."""

from __future__ import annotations

from functools import partial

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import each
from loadtest.faults.trial import Trial
from servers.loopback import free_port

#: Error -> the command after which Redis answers writes with it, and that which ends it.
REFUSALS = {
    "OOM": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "NOREPLICAS": ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    "READONLY": (f"REPLICAOF 127.0.0.1 {free_port()}", "REPLICAOF NO ONE"),
}
#: The error while victims hold their locks: a background save failed.
LASTS = "MISCONF"
LASTING = ["CONFIG SET stop-writes-on-bgsave-error yes", "BGSAVE"]


class Misconf(Fault):
    """Out of memory, too few replicas, a replica in the master's place: a buyer asks during each of
    them, before the victims do. Then a snapshot fails while victims hold their locks, and Redis
    refuses their releases (stop-writes-on-bgsave-error).

    RedisLock can be acquired without free memory: its script begins with an LPOP, and Redis lets a
    script that has written go on. So its buyers may buy meanwhile, under the lock.
    """

    name = "misconf"
    title = f"Redis refuses writes: {', '.join(REFUSALS)}, {LASTS}"
    before = 0

    def arm(self) -> None:
        self.counted: dict[str, int] = {}
        for error, (begin, end) in REFUSALS.items():
            before = self._count(error)
            self.ask(*begin.split())
            try:
                each(self.trials, partial(self._is_refused, error=error))
            finally:
                self.ask(*end.split())
            self.counted[error] = self._count(error) - before
            self.require(self.counted[error], f"no command was answered {error}")

    def fire(self) -> None:
        self.before = self._count(LASTS)
        in_its_way = self.testbed.main.folder / "dump.rdb"
        in_its_way.unlink(missing_ok=True)  # a replica that has synced leaves one
        in_its_way.mkdir()
        self.ask("CONFIG", "SET", "save", "3600 1")
        for command in LASTING:
            self.ask(*command.split())

    def prove(self) -> str:
        self.require_soon(self._refuses, f"no write is answered {LASTS}")
        counted = ", ".join(f"{number} {error}" for error, number in self.counted.items())
        return f"answers by Redis before the victims came: {counted}; then to a SET: {LASTS}"

    def meet(self, trial: Trial) -> None:
        """Resume the victim, so that its release is refused."""
        trial.resume_victim()
        self._is_refused(trial, LASTS)

    def resume(self, trial: Trial) -> None:
        """Everybody was resumed in meet."""

    def heal(self) -> None:
        self.counted[LASTS] = self._count(LASTS) - self.before
        self.ask("CONFIG", "SET", "save", "")
        for _, end in REFUSALS.values():
            self.ask(*end.split())
        in_its_way = self.testbed.main.folder / "dump.rdb"
        if in_its_way.is_dir():
            in_its_way.rmdir()

    def observed(self) -> str:
        return f"while the victims held their locks: {self.counted.get(LASTS, 0)} {LASTS}"

    def _is_refused(self, trial: Trial, error: str) -> None:
        may_buy = error == "OOM" and trial.strategy["fenced"]
        wanted = ["unavailable", *(["sold"] if may_buy else [])]
        trial.must_be_answered(f"buyer-{error}".lower(), *wanted)

    def _count(self, error: str) -> int:
        """How many commands Redis has answered with this error."""
        return int(self.ask("INFO", "errorstats").get(f"errorstat_{error}", {}).get("count", 0))

    def _refuses(self) -> bool:
        try:
            self.ask("SET", "probe", 1, "PX", 1000)
        except redis.ResponseError as error:
            return LASTS in str(error)
        return False
