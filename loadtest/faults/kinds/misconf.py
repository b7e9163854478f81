"""`misconf`: Redis refuses writes.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

from functools import partial

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import run_in_parallel
from loadtest.faults.trial import Trial
from servers.loopback import find_free_port

#: Error -> the command after which Redis answers writes with this error, and the command after
#: which Redis accepts writes again. `port` is replaced by a port at which no server listens.
WRITE_ERRORS = {
    "OOM": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "NOREPLICAS": ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    "READONLY": ("REPLICAOF 127.0.0.1 {port}", "REPLICAOF NO ONE"),
}
#: The error with which Redis answers writes after a background save has failed. It lasts while the
#: victims hold their locks, unlike WRITE_ERRORS, which end before the victims start.
LASTING_ERROR = "MISCONF"
#: Commands that begin a background save of Redis. It fails, because fire() has made a folder with
#: the name of the file that Redis wants to write.
FAILED_SAVE_COMMANDS = ["CONFIG SET stop-writes-on-bgsave-error yes", "BGSAVE"]


class MisconfFault(Fault):
    """Redis refuses writes before and while the victims hold their locks.

    Before the victims start, Redis is first out of memory, then has too few replicas, then is a
    replica itself. In each of these states one buyer of each trial tries to buy. Later a background
    save fails while the victims hold their locks, and Redis refuses the commands that release them
    (stop-writes-on-bgsave-error).
    """

    name = "misconf"
    title = f"Redis refuses writes: {', '.join(WRITE_ERRORS)}, {LASTING_ERROR}"

    def arm(self) -> None:
        """Make Redis refuse writes for several reasons, one after the other.

        Each time, check that a buyer of each trial is refused, and then let Redis accept writes
        again.
        """
        self.refusals_by_error: dict[str, int] = {}
        for error, (begin_command, end_command) in WRITE_ERRORS.items():
            refusals_before = self._count_refusals(error)
            self.run_redis_command(*begin_command.format(port=find_free_port()).split())
            try:
                run_in_parallel(self.trials, partial(self._expect_refusal, error=error))
            finally:
                self.run_redis_command(*end_command.split())
            self.refusals_by_error[error] = self._count_refusals(error) - refusals_before
            self.require(self.refusals_by_error[error], f"Redis answered no command with {error}")

    def fire(self) -> None:
        """Make a background save fail. After that Redis refuses writes, with the error MISCONF."""
        self.refusals_before = self._count_refusals(LASTING_ERROR)
        snapshot = self.testbed.main_redis.folder / "dump.rdb"
        snapshot.unlink(missing_ok=True)  # an earlier fault with a replica may have left this file
        snapshot.mkdir()  # Redis cannot write its file while a folder has this name
        self.undo_on_heal.callback(snapshot.rmdir)
        self.undo_on_heal.callback(self.run_redis_command, "CONFIG", "SET", "save", "")
        # Redis refuses writes after a failed save only if it is configured to save at intervals.
        self.run_redis_command("CONFIG", "SET", "save", "3600 1")
        for command in FAILED_SAVE_COMMANDS:
            self.run_redis_command(*command.split())

    def prove(self) -> str:
        """Prove that Redis refuses writes with LASTING_ERROR."""
        write = partial(self.try_redis_command, "SET", "probe", 1, "PX", 1000)
        self.require_soon(
            lambda: LASTING_ERROR in write(), f"Redis does not refuse writes with {LASTING_ERROR}"
        )
        counts = ", ".join(f"{count} {error}" for error, count in self.refusals_by_error.items())
        return f"answers by Redis before the victims came: {counts}; then to a SET: {LASTING_ERROR}"

    def run_buyers(self, trial: Trial) -> None:
        """Resume the victim, whose release Redis refuses, and check that a new buyer is refused."""
        trial.resume_victim()
        self._expect_refusal(trial, LASTING_ERROR)

    def describe_observations(self) -> str:
        """Return how many commands Redis has refused with LASTING_ERROR."""
        refusals = self._count_refusals(LASTING_ERROR) - self.refusals_before
        return f"{refusals} commands were refused with {LASTING_ERROR} while the victims held locks"

    def _expect_refusal(self, trial: Trial, error: str) -> None:
        """Let a new buyer send one request, and record a problem if it is not refused.

        error  the error with which Redis refuses writes now; it becomes part of the buyer's name
        """
        self.expect_outcome(trial, f"buyer-{error}".lower(), "unavailable")

    def _count_refusals(self, error: str) -> int:
        """Return how many commands Redis has answered with this error."""
        return int(
            self.run_redis_command("INFO", "errorstats")
            .get(f"errorstat_{error}", {})
            .get("count", 0)
        )
