"""slow-write: the holder writes in time, and its write arrives late."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial, measured_ttl

#: Seconds for each chunk between node A and PostgreSQL, in each direction.
DELAY = 0.8


class SlowWrite(Fault):
    """Kleppmann's case: no process and no lock server is slow, but the network to the database is.
    The victim sends its write within its ttl, and it arrives after the ttl."""

    name = "slow-write"
    title = f"{DELAY:g} s each way between the holder's node and PostgreSQL"

    def __init__(self) -> None:
        super().__init__()
        self.probe: psycopg.Connection[Any] | None = None
        self.sent_at = self.round_trip = 0.0
        self.late: dict[str, float] = {}

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.probe = psycopg.connect(
            testbed.database_url, host=testbed.postgres.address, autocommit=True
        )

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        """Every victim sends its write at once, within its ttl."""
        testbed.postgres.delay(DELAY)
        self.sent_at = time.monotonic()
        for trial in trials:
            testbed.resume(f"{trial.attempts}/victim", trial.stop)

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        assert self.probe is not None
        began = time.monotonic()
        self.probe.execute("SELECT 1")
        self.round_trip = time.monotonic() - began
        self.require(
            self.round_trip >= 2 * DELAY, f"a round trip takes {self.round_trip:.2f} s only"
        )
        return f"a round trip of node A to PostgreSQL takes {self.round_trip:.2f} s"

    def resume(self, trial: Trial) -> None:
        """The victims are writing. Wait for their answers before the rivals go on: else nobody
        knows whose write was later."""
        trial.resume_rivals()
        assert trial.victim is not None
        trial.victim.join(20)
        self.late[trial.lock] = time.monotonic() - self.sent_at
        if self.late[trial.lock] < 2 * DELAY:
            trial.miss(f"the victim was answered after {self.late[trial.lock]:.2f} s")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        testbed.postgres.pass_on()
        if self.probe is not None:
            self.probe.close()

    def observed(self, trials: Sequence[Trial]) -> str:
        if not self.late:
            return ""
        times = sorted(self.late.values())
        return (
            f"the victims had their answers {times[0]:.1f} to {times[-1]:.1f} s after they wrote, "
            f"and the locks had {measured_ttl(trials)}"
        )
