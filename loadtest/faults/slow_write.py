"""slow-write: the holder writes in time, and its write arrives late."""

from __future__ import annotations

import time

import psycopg

from loadtest.faults.fault import Fault
from loadtest.faults.trial import Trial

#: Seconds for each chunk between node A and PostgreSQL, in each direction.
DELAY = 0.8


class SlowWrite(Fault):
    """Kleppmann's case: no process and no lock server is slow, but the network to the database is.
    The victim sends its write within its ttl, and it arrives after the ttl."""

    name = "slow-write"
    title = f"{DELAY:g} s each way between the holder's node and PostgreSQL"

    def arm(self) -> None:
        url, host = self.testbed.database_url, self.testbed.postgres.address
        self.probe = psycopg.connect(url, host=host, autocommit=True)
        self.opened.callback(self.probe.close)
        self.late: list[float] = []

    def fire(self) -> None:
        """Every victim sends its write at once, within its ttl."""
        self.testbed.postgres.delay(DELAY)
        self.sent_at = time.monotonic()
        for trial in self.trials:
            trial.resume_victim(seconds=0)

    def prove(self) -> str:
        began = time.monotonic()
        self.probe.execute("SELECT 1")
        took = time.monotonic() - began
        self.require(took >= 2 * DELAY, f"a round trip takes {took:.2f} s only")
        return f"a round trip of node A to PostgreSQL takes {took:.2f} s"

    def resume(self, trial: Trial) -> None:
        """The victims are writing. Wait for their answers before the rivals go on: else nobody
        knows whose write was later."""
        trial.resume_rivals()
        trial.first_answer(20)
        took = time.monotonic() - self.sent_at
        self.late.append(took)
        if took < 2 * DELAY:
            trial.miss(f"the victim was answered after {took:.2f} s")

    def heal(self) -> None:
        self.testbed.postgres.pass_on()

    def observed(self) -> str:
        if not self.late:
            return ""
        return (
            f"the victims had their answers {min(self.late):.1f} to {max(self.late):.1f} s after "
            f"they wrote, and the locks had {self.measured_ttl()}"
        )
