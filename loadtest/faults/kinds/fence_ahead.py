"""`fence-ahead`, `fence-ahead@raised`: the database's fence is ahead of Redis's clock."""

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS_NODE, run_for_each
from loadtest.faults.trial import Trial
from loadtest.stack.node import StackError, manage

#: Seconds by which the database's fence is ahead.
FENCE_AHEAD_SECONDS = 3600.0
#: How long manage.py raise_fence may take.
COMMAND_TIMEOUT_SECONDS = 60.0


class FenceAheadFault(Fault):
    """Every new fence is lower than the database's, so every holder is refused as stale.

    This happens after a move to an empty Redis whose clock is behind. Nothing is sold until
    FENCE_AHEAD_SECONDS have passed or an operator raises the fences of the locks
    (fence-ahead@raised).
    """

    name = "fence-ahead"
    title = f"the database's fence is {FENCE_AHEAD_SECONDS:g} s ahead of Redis's clock"
    point = ""
    #: The command for the operator that the answer to a buyer must name.
    operator_command = "manage.py raise_fence"

    def fire(self) -> None:
        fence = round((self._read_redis_clock() + FENCE_AHEAD_SECONDS) * 1_000_000)
        update = (
            f"UPDATE product SET fence = {fence} WHERE name LIKE '%-{self.unique_id}' RETURNING 1"
        )
        self.testbed.sql(update)

    def prove(self) -> str:
        ahead = self.measure_seconds_ahead()
        self.require(
            ahead > FENCE_AHEAD_SECONDS - 60, f"the database's fence is {ahead:.0f} s ahead only"
        )
        return f"the database's fences are {ahead:.0f} s ahead of the TIME that Redis answers"

    def act(self, trial: Trial) -> None:
        """Let a buyer ask. The answer must be a refusal that names the operator's command."""
        outcome = trial.ask_once("refused")
        error = trial.buyers[-1].last_body.get("error", "")
        if outcome != "lost":
            trial.mark_inconclusive(f"a buyer was answered {outcome}, not lost")
        elif self.operator_command not in error:
            trial.problems.append(f"the answer does not name {self.operator_command}: {error}")

    def describe_observations(self) -> str:
        refused = sum(not (trial.inconclusive_reason or trial.problems) for trial in self.trials)
        return f"{refused} buyers were answered lost, with {self.operator_command} as the way out"

    def measure_seconds_ahead(self) -> float:
        """Return the seconds by which the trials' lowest fence is ahead of Redis's clock."""
        rows = self.testbed.sql(
            f"SELECT min(fence) FROM product WHERE name LIKE '%-{self.unique_id}'"
        )
        return float(rows[0][0]) / 1_000_000 - self._read_redis_clock()

    def _read_redis_clock(self) -> float:
        """Return the time of Redis's clock in seconds."""
        seconds, microseconds = self.run_redis_command("TIME")
        return int(seconds) + int(microseconds) / 1_000_000


class FenceAheadRaisedFault(FenceAheadFault):
    """The database's fence is ahead, and an operator raises the fences of the locks.

    The operator runs manage.py raise_fence for each product while the shop runs. The command does
    not change the database's fences.
    """

    name = "fence-ahead@raised"
    title = f"the same, and an operator runs {FenceAheadFault.operator_command}"

    def heal(self) -> None:
        run_for_each(self.trials, self.raise_fence)
        ahead = self.measure_seconds_ahead()
        if ahead < FENCE_AHEAD_SECONDS - 120:
            for trial in self.trials:
                trial.problems.append(f"the database's fence was lowered: {ahead:.0f} s ahead")

    def describe_observations(self) -> str:
        raised = sum(not trial.inconclusive_reason for trial in self.trials)
        return f"{super().describe_observations()}; the command ran for {raised} products"

    def raise_fence(self, trial: Trial) -> None:
        """Run the operator's command. If it does not raise the fence, the trial is inconclusive."""
        arguments = ("raise_fence", trial.product, "--lock", trial.lock)
        try:
            output = manage(
                *arguments,
                environment=self.testbed.nodes[RIVALS_NODE].environment,
                log=self.testbed.log,
                timeout=COMMAND_TIMEOUT_SECONDS,
            )
        except StackError as error:
            output = str(error)
        if "was raised" not in output:
            trial.mark_inconclusive(f"raise_fence: {output.strip()}")
