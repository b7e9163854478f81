"""fence-ahead: the database has seen fences from an hour ahead of Redis's clock."""

from __future__ import annotations

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, each
from loadtest.faults.trial import Trial
from loadtest.stack.database import manage

#: Seconds by which the database's fence is ahead.
AHEAD = 3600.0


class FenceAhead(Fault):
    """As after a move to a Redis that is empty and whose clock is behind: every new fence is lower
    than the database's. Every holder is refused as stale, and so nothing is sold. It ends by
    itself only after that hour; see fence-ahead@raised."""

    name = "fence-ahead"
    title = f"the database's fence is {AHEAD:g} s ahead of Redis's clock"
    #: The command that the buyers' answer names, for the operator.
    way_out = "manage.py raise_fence"
    refused = 0

    def enter(self, trial: Trial) -> None:
        self.require_a_sale(trial)

    def fire(self) -> None:
        fence = round((self._clock() + AHEAD) * 1_000_000)
        self.testbed.sql(f"UPDATE product SET fence = {fence} WHERE {self._ours()} RETURNING 1")

    def prove(self) -> str:
        ahead = self.ahead()
        self.require(ahead > AHEAD - 60, f"the database's fence is {ahead:.0f} s ahead only")
        return f"the database's fences are {ahead:.0f} s ahead of the TIME that Redis answers"

    def act(self, trial: Trial) -> None:
        """A buyer is refused, and the answer says why and what to do."""
        outcome, error = trial.ask_once("refused"), trial.buyers[-1].said.get("error", "")
        if outcome != "lost":
            trial.miss(f"a buyer was answered {outcome}, not lost")
        elif self.way_out not in error:
            trial.wrong.append(f"the answer does not name {self.way_out}: {error}")
        else:
            self.refused += 1

    def observed(self) -> str:
        return f"{self.refused} buyers were answered lost, with {self.way_out} as the way out"

    def ahead(self) -> float:
        """Seconds by which the lowest fence is ahead of Redis's clock."""
        found = self.testbed.sql(f"SELECT min(fence) FROM product WHERE {self._ours()}")
        return float(found[0][0]) / 1_000_000 - self._clock()

    def _clock(self) -> float:
        """Redis's clock, in seconds."""
        seconds, microseconds = self.ask("TIME")
        return int(seconds) + int(microseconds) / 1_000_000

    def _ours(self) -> str:
        """The products, for SQL: names of ours, without a quote."""
        names = ", ".join(f"'{trial.product}'" for trial in self.trials)
        return f"name IN ({names})"


class FenceAheadRaised(FenceAhead):
    """The same, and an operator runs manage.py raise_fence for each product, while the shop runs.
    The database's fence stays as it is."""

    name = "fence-ahead@raised"
    title = f"the same, and an operator runs {FenceAhead.way_out}"

    def heal(self) -> None:
        self.raised: list[Trial] = []
        each(self.trials, self.raise_fence)
        ahead = self.ahead()
        if ahead < AHEAD - 120:
            for trial in self.trials:
                trial.wrong.append(f"the database's fence was lowered: {ahead:.0f} s ahead")

    def observed(self) -> str:
        return f"{super().observed()}; the command ran for {len(self.raised)} products"

    def raise_fence(self, trial: Trial) -> None:
        """What the operator does. Raises StackError where the command fails."""
        words = ("raise_fence", trial.product, "--lock", trial.lock)
        environment = self.testbed.nodes[RIVALS].environment
        manage(*words, environment=environment, log=self.testbed.log)
        self.raised.append(trial)
