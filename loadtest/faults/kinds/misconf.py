"""`misconf`: Redis refuses writes."""

from functools import partial

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import each
from loadtest.faults.trial import Trial
from servers.loopback import free_port

#: Error -> the command after which Redis answers writes with it, and that which ends it. The port
#: is one at which nothing listens.
REFUSALS = {
    "OOM": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "NOREPLICAS": ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    "READONLY": ("REPLICAOF 127.0.0.1 {port}", "REPLICAOF NO ONE"),
}
#: The error while victims hold their locks: a background save failed.
LASTS = "MISCONF"
LASTING = ["CONFIG SET stop-writes-on-bgsave-error yes", "BGSAVE"]


class MisconfFault(Fault):
    """Out of memory, too few replicas, a replica in the master's place: a buyer asks during each of
    them, before the victims do. Then a snapshot fails while victims hold their locks, and Redis
    refuses their releases (stop-writes-on-bgsave-error).

    RedisLock can be acquired without free memory: its script begins with an LPOP, and Redis lets a
    script that has written go on. So its buyers may buy meanwhile, under the lock.
    """

    name = "misconf"
    title = f"Redis refuses writes: {', '.join(REFUSALS)}, {LASTS}"

    def arm(self) -> None:
        self.counted: dict[str, int] = {}
        for error, (begin, end) in REFUSALS.items():
            before = self._count(error)
            self.ask(*begin.format(port=free_port()).split())
            try:
                each(self.trials, partial(self._is_refused, error=error))
            finally:
                self.ask(*end.split())
            self.counted[error] = self._count(error) - before
            self.require(self.counted[error], f"no command was answered {error}")

    def fire(self) -> None:
        self.before = self._count(LASTS)
        snapshot = self.testbed.main.folder / "dump.rdb"
        snapshot.unlink(missing_ok=True)  # a replica that has synced leaves one
        snapshot.mkdir()  # in the way of Redis's own
        self.healing.callback(snapshot.rmdir)
        self.healing.callback(self.ask, "CONFIG", "SET", "save", "")
        self.ask("CONFIG", "SET", "save", "3600 1")
        for command in LASTING:
            self.ask(*command.split())

    def prove(self) -> str:
        write = partial(self.error, "SET", "probe", 1, "PX", 1000)
        self.require_soon(lambda: LASTS in write(), f"no write is answered {LASTS}")
        counted = ", ".join(f"{number} {error}" for error, number in self.counted.items())
        return f"answers by Redis before the victims came: {counted}; then to a SET: {LASTS}"

    def act(self, trial: Trial) -> None:
        """Resume the victim, so that its release is refused."""
        trial.resume_victim()
        self._is_refused(trial, LASTS)

    def observed(self) -> str:
        return f"while the victims held their locks: {self._count(LASTS) - self.before} {LASTS}"

    def _is_refused(self, trial: Trial, error: str) -> None:
        outcomes = ["unavailable"]
        if error == "OOM" and trial.strategy["fenced"]:
            outcomes.append("sold")
        self.must_be_answered(trial, f"buyer-{error}".lower(), *outcomes)

    def _count(self, error: str) -> int:
        """Return how many commands Redis has answered with this error."""
        return int(self.ask("INFO", "errorstats").get(f"errorstat_{error}", {}).get("count", 0))
