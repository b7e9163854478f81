"""misconf: Redis answers, and refuses every write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import redis

from loadtest.faults.fault import Fault
from loadtest.faults.parallel import each
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial
from servers.loopback import free_port

#: Error -> the commands after which Redis answers writes with it, and those that end it.
REFUSALS = {
    "OOM": (["CONFIG SET maxmemory 1"], ["CONFIG SET maxmemory 0"]),
    "NOREPLICAS": (["CONFIG SET min-replicas-to-write 1"], ["CONFIG SET min-replicas-to-write 0"]),
    "READONLY": ([f"REPLICAOF 127.0.0.1 {free_port()}"], ["REPLICAOF NO ONE"]),
}
#: The error while victims hold their locks: a background save failed.
LASTS = "MISCONF"
LASTING = ["CONFIG SET stop-writes-on-bgsave-error yes", "BGSAVE"]
PROBE = "probe"


class Misconf(Fault):
    """Out of memory, too few replicas, a replica in the master's place: a buyer asks during each of
    them, before the victims do. Then a snapshot fails while victims hold their locks, and Redis
    refuses their releases (stop-writes-on-bgsave-error).

    RedisLock can be acquired without free memory: its script begins with an LPOP, and Redis lets a
    script that has written go on. So its buyers may buy meanwhile, under the lock.
    """

    name = "misconf"
    title = f"Redis refuses writes: {', '.join(REFUSALS)}, {LASTS}"

    def __init__(self) -> None:
        super().__init__()
        self.counted: dict[str, int] = {}

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        for error, (begin, end) in REFUSALS.items():
            before = refused(testbed, error)
            _each_of(testbed, begin)
            try:
                each(trials, partial(self._is_refused, error=error))
            finally:
                _each_of(testbed, end)
            self.counted[error] = refused(testbed, error) - before
            self.require(self.counted[error], f"no command was answered {error}")

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.before = refused(testbed, LASTS)
        in_its_way = testbed.main.folder / "dump.rdb"
        in_its_way.unlink(missing_ok=True)  # a replica that has synced leaves one
        in_its_way.mkdir()
        testbed.ask(testbed.main, "CONFIG", "SET", "save", "3600 1")
        _each_of(testbed, LASTING)

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        self.require_soon(lambda: _refuses(testbed), f"no write is answered {LASTS}")
        counted = ", ".join(f"{number} {error}" for error, number in self.counted.items())
        return f"answers by Redis before the victims came: {counted}; then to a SET: {LASTS}"

    def meet(self, trial: Trial) -> None:
        """Resume the victim, so that its release is refused."""
        trial.resume_victim()
        self._is_refused(trial, LASTS)

    def resume(self, trial: Trial) -> None:
        """Everybody was resumed in meet."""

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.counted[LASTS] = refused(testbed, LASTS) - getattr(self, "before", 0)
        testbed.ask(testbed.main, "CONFIG", "SET", "save", "")
        for _, end in REFUSALS.values():
            _each_of(testbed, end)
        in_its_way = testbed.main.folder / "dump.rdb"
        if in_its_way.is_dir():
            in_its_way.rmdir()

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"while the victims held their locks: {self.counted.get(LASTS, 0)} {LASTS}"

    def _is_refused(self, trial: Trial, error: str) -> None:
        name = f"buyer-{error}".lower()
        outcome = trial.ask_once(name)
        if error == "OOM" and trial.strategy["fenced"] and outcome == "sold":
            return
        if outcome != "unavailable":
            trial.wrong.append(f"{name} was answered {outcome}, not unavailable")


def refused(testbed: Testbed, error: str) -> int:
    """How many commands Redis has answered with this error."""
    found = testbed.ask(testbed.main, "INFO", "errorstats").get(f"errorstat_{error}", {})
    return int(found.get("count", 0))


def _refuses(testbed: Testbed) -> bool:
    try:
        testbed.ask(testbed.main, "SET", PROBE, 1, "PX", 1000)
    except redis.ResponseError as error:
        return LASTS in str(error)
    return False


def _each_of(testbed: Testbed, commands: Sequence[str]) -> None:
    for command in commands:
        testbed.ask(testbed.main, *command.split())
