"""`slow-write`: the network between the holder's node and PostgreSQL is slow.

Node A serves the victims, who are the buyers hit by the fault. Node B serves their rivals, who come
while a victim is stopped. fault.py describes the steps of a fault.
"""

import time

from loadtest.faults.fault import Fault, format_range
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS
from loadtest.faults.trial import Trial

#: Delay of each chunk of bytes between node A and PostgreSQL, in each direction.
DELAY_SECONDS = 0.8


class SlowWriteFault(Fault):
    """Only the network to the database is slow. All processes and lock servers run as usual.

    The victim sends its write before its lock expires. The write arrives late, and is committed
    after the lock has expired. Martin Kleppmann described this case in "How to do distributed
    locking".
    """

    name = "slow-write"
    title = f"{DELAY_SECONDS:g} s each way between the holder's node and PostgreSQL"

    def arm(self) -> None:
        """Open a connection through the proxy, on which the delay can be measured."""
        self.proxied_connection = self.connect_through_proxy()
        self.answer_times: list[float] = []  # seconds from a victim's resumption to its answer
        self.round_trips: list[float] = []  # seconds of each measured round trip

    def fire(self) -> None:
        """Slow the network down, and resume the victims without waiting for their answers.

        The victims send their writes before their locks expire, and are answered after their locks
        have expired.
        """
        self.undo_on_heal.callback(self.testbed.database_proxy.pass_on)
        self.testbed.database_proxy.delay(DELAY_SECONDS)
        self.sent_at = time.monotonic()
        for trial in self.trials:
            trial.resume_victim(timeout_seconds=0)

    def prove(self) -> str:
        """Prove by one round trip that the network is slow."""
        seconds = self._measure_round_trip()
        self.require(seconds >= 2 * DELAY_SECONDS, f"a round trip takes only {seconds:.2f} s")
        return f"a round trip of node A to PostgreSQL takes {seconds:.2f} s"

    def act_while_buyers_run(self) -> None:
        """Measure round trips to PostgreSQL until every victim is answered.

        A round trip takes at least two delays, one in each direction. If one is faster, the delay
        ended too early, and all trials are inconclusive. The wait does not include the victims of
        trials that are already inconclusive.
        """
        all_are_answered = False
        while not all_are_answered:
            all_are_answered = all(
                trial.inconclusive_reason or trial.victim.first_outcome for trial in self.trials
            )
            seconds = self._measure_round_trip()
            if seconds < 2 * DELAY_SECONDS:
                for trial in self.trials:
                    trial.mark_inconclusive(
                        f"a round trip took only {seconds:.2f} s while the victims wrote"
                    )
                return

    def _measure_round_trip(self) -> float:
        """Return the seconds of a round trip to PostgreSQL, and append them to `round_trips`."""
        started_at = time.monotonic()
        self.proxied_connection.execute("SELECT 1")
        seconds = time.monotonic() - started_at
        self.round_trips.append(seconds)
        return seconds

    def resume(self, trial: Trial) -> None:
        """Resume the rivals, then wait for the victim's answer.

        If the answer came in less than one round trip of the slow network, the trial is
        inconclusive.
        """
        trial.resume_rivals()
        trial.wait_for_first_outcome(2 * ANSWER_TIMEOUT_SECONDS)
        if not trial.victim.first_outcome:
            trial.mark_inconclusive("the victim has no answer")
            return
        answer_seconds = trial.victim.first_answered_at - self.sent_at
        self.answer_times.append(answer_seconds)
        if answer_seconds < 2 * DELAY_SECONDS:
            trial.mark_inconclusive(f"the victim was answered after only {answer_seconds:.2f} s")

    def describe_observations(self) -> str:
        """Return how late the victims were answered, and how long the round trips took."""
        return (
            f"the victims were answered {format_range(self.answer_times)} after they were resumed; "
            f"meanwhile {len(self.round_trips)} round trips took {format_range(self.round_trips)}"
        )
