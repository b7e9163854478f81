"""fence-ahead: the database has seen fences from an hour ahead of Redis's clock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.parallel import each
from loadtest.faults.testbed import RIVALS, Testbed
from loadtest.faults.trial import Trial
from loadtest.stack.stack import ROOT

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

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def enter(self, trial: Trial) -> None:
        first = trial.ask_once("early")
        self.require(
            first == "sold", f"{trial.lock}: the first buyer was answered {first} before the fault"
        )

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        fence = round((clock(testbed) + AHEAD) * 1_000_000)
        testbed.sql(
            f"UPDATE product SET fence = {fence} WHERE name IN ({_names(trials)}) RETURNING 1"
        )

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        ahead = self._ahead(testbed, trials)
        self.require(ahead > AHEAD - 60, f"the database's fence is {ahead:.0f} s ahead only")
        return f"the database's fences are {ahead:.0f} s ahead of the TIME that Redis answers"

    def act(self, trial: Trial) -> None:
        """A buyer is refused, and the answer says why and what to do."""
        outcome, error = trial.ask_once("refused"), trial.buyers[-1].error
        if outcome != "lost":
            trial.miss(f"a buyer was answered {outcome}, not lost")
        elif self.way_out not in error:
            trial.wrong.append(f"the answer does not name {self.way_out}: {error}")
        else:
            self.refused += 1

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"{self.refused} buyers were answered lost, with {self.way_out} as the way out"

    @staticmethod
    def _ahead(testbed: Testbed, trials: Sequence[Trial]) -> float:
        """Seconds by which the lowest fence is ahead of Redis's clock."""
        found = testbed.sql(f"SELECT min(fence) FROM product WHERE name IN ({_names(trials)})")
        return float(found[0][0]) / 1_000_000 - clock(testbed)


class FenceAheadRaised(FenceAhead):
    """The same, and an operator runs manage.py raise_fence for each product, while the shop runs.
    The database's fence stays as it is."""

    name = "fence-ahead@raised"
    title = f"the same, and an operator runs {FenceAhead.way_out}"

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        each(trials, self._raise)
        ahead = self._ahead(testbed, trials)
        if ahead < AHEAD - 120:
            for trial in trials:
                trial.wrong.append(f"the database's fence was lowered: {ahead:.0f} s ahead")

    def observed(self, trials: Sequence[Trial]) -> str:
        return f"{super().observed(trials)}; the command ran for {len(self.said)} products"

    def _raise(self, trial: Trial) -> None:
        done = subprocess.run(
            [sys.executable, "manage.py", "raise_fence", trial.product, "--lock", trial.lock],
            cwd=ROOT,
            env=trial.testbed.nodes[RIVALS].environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            start_new_session=True,
        )
        if done.returncode or "was raised" not in done.stdout:
            trial.miss(f"raise_fence: {(done.stdout + done.stderr).strip()}")
        else:
            self.said.append(done.stdout)


def clock(testbed: Testbed) -> float:
    """Redis's clock, in seconds."""
    seconds, microseconds = testbed.ask(testbed.main, "TIME")
    return int(seconds) + int(microseconds) / 1_000_000


def _names(trials: Sequence[Trial]) -> str:
    """The products, for SQL: names of ours, without a quote."""
    return ", ".join(f"'{trial.product}'" for trial in trials)
