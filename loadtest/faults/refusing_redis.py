"""stall, busy, misconf: Redis lives, and answers nobody, or refuses every write."""

import os
import signal
import threading
import time
from functools import partial

import psutil

from loadtest.faults import measure
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import VICTIMS, each, wait_for
from loadtest.faults.trial import Trial
from servers.loopback import free_port

ENDLESS = "while true do end"
KILL_SCRIPT = ("SCRIPT", "KILL")
WRITES = "redis.call('set', KEYS[1], 1) while true do end"
#: Milliseconds after which Redis answers BUSY, and seconds that it stays busy: less than a ttl.
THRESHOLD = "50"
BUSY = 0.4
#: Seconds for each chunk between node A and Redis while `stall` has its first buyers.
CONNECTING = 0.05
#: Error -> the command after which Redis answers writes with it, and that which ends it.
REFUSALS = {
    "OOM": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "NOREPLICAS": ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    "READONLY": (f"REPLICAOF 127.0.0.1 {free_port()}", "REPLICAOF NO ONE"),
}
#: The error while victims hold their locks: a background save failed.
LASTS = "MISCONF"
LASTING = ["CONFIG SET stop-writes-on-bgsave-error yes", "BGSAVE"]


class Stall(Fault):
    """SIGSTOP of Valkey. A command whose client has given up stays in the socket's buffer and is
    carried out after SIGCONT: a lock that nobody knows of. That takes a connection which is open
    already: a new one waits for Redis before it sends anything."""

    name = "stall"
    title = "Redis is stopped past its clients' timeout"

    def arm(self) -> None:
        """Slow the first buyers down, so that they are there at once, with a connection each."""
        self.healing.callback(self.testbed.redis[VICTIMS].pass_on)
        self.testbed.redis[VICTIMS].delay(CONNECTING)

    def enter(self, trial: Trial) -> None:
        self.require_a_sale(trial, VICTIMS)

    def fire(self) -> None:
        self.heal()
        self.pid = int(self.ask("INFO", "server")["process_id"])
        self.healing.callback(os.kill, self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGSTOP)

    def prove(self) -> str:
        self.require_soon(self.lasts, "Redis still runs", 2.0)
        return "Redis is in state T until every victim has given up"

    def lasts(self) -> bool:
        return measure.state_of(self.pid) == psutil.STATUS_STOPPED

    def act(self, trial: Trial) -> None:
        names = f"{trial.attempts}/victim" if trial.strategy["reserves"] else trial.product
        sent = self.testbed.redis[VICTIMS].look_for(names.encode())
        self.must_be_answered(trial, "victim-1", *trial.without_reply, node=VICTIMS)
        sent.cancel()
        is_own = "verdicts" in trial.strategy  # a lock of one's own has any name, or is none
        if not (sent.fired or is_own):
            trial.miss("no command of the victim was on its way to Redis")


class Busy(Fault):
    """First an endless script that has written: SCRIPT KILL answers UNKILLABLE, and only SHUTDOWN
    NOSAVE helps. Then, while victims hold their locks, one that SCRIPT KILL ends."""

    name = "busy"
    title = "an endless script; SCRIPT KILL, SHUTDOWN NOSAVE"

    def arm(self) -> None:
        self.refused: list[Trial] = []
        self._begin(WRITES)
        for trial in self.trials:
            self.must_be_answered(trial, "unkillable", "unavailable")
        self.unkillable = self.error(*KILL_SCRIPT)
        self.require("UNKILLABLE" in self.unkillable, f"SCRIPT KILL answered {self.unkillable}")
        self.error("SHUTDOWN", "NOSAVE")  # it ends without an answer
        self.script.join(5)
        self.require(not self.script.is_alive(), "SHUTDOWN NOSAVE ended no script")
        self.testbed.restart_empty(self.testbed.main)

    def fire(self) -> None:
        self._begin(ENDLESS)

    def prove(self) -> str:
        self.require(self.lasts(), "Redis is not busy any more")
        return "Redis answers BUSY, before the buyers ask and after"

    def observed(self) -> str:
        return f"to SCRIPT KILL of the first script: {self.unkillable}"

    def act(self, trial: Trial) -> None:
        """Resume the victim while Redis is busy, so that its release is refused."""
        trial.resume_victim()
        self.must_be_answered(trial, "rival-1", "unavailable")
        self.refused.append(trial)

    def meanwhile(self) -> None:
        time.sleep(BUSY)
        wait_for(lambda: len(self.refused) == len(self.trials), 10)  # all have asked a busy Redis
        error = self.error(*KILL_SCRIPT)
        self.require(not error, f"the script ended early: SCRIPT KILL answered {error}")
        self.script.join(5)

    def lasts(self) -> bool:
        return "BUSY" in self.error("GET", "x", timeout=1)

    def _begin(self, script: str) -> None:
        """Run an endless script in a thread, which ends with it: SCRIPT KILL is its error."""
        self.healing.callback(self.ask, "CONFIG", "SET", "busy-reply-threshold", "5000")
        self.healing.callback(self.error, *KILL_SCRIPT)
        self.ask("CONFIG", "SET", "busy-reply-threshold", THRESHOLD)
        run = partial(self.error, "EVAL", script, 1, "endless", timeout=30)
        self.script = threading.Thread(target=run, daemon=True)
        self.script.start()
        self.require_soon(self.lasts, "Redis is not busy", 5.0)


class Misconf(Fault):
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
            self.ask(*begin.split())
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
        may_buy = error == "OOM" and trial.strategy["fenced"]
        wanted = ["unavailable", *(["sold"] if may_buy else [])]
        self.must_be_answered(trial, f"buyer-{error}".lower(), *wanted)

    def _count(self, error: str) -> int:
        """How many commands Redis has answered with this error."""
        return int(self.ask("INFO", "errorstats").get(f"errorstat_{error}", {}).get("count", 0))
