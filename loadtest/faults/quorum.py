"""quorum: Redlock without two of its five servers, then without three."""

from __future__ import annotations

from collections.abc import Sequence

from loadtest.faults.fault import Fault
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial


class Quorum(Fault):
    """With two of five servers cut off the shop sells, with three it refuses. `restart` shows that
    a server which comes back empty leads to two holders."""

    name = "quorum"
    title = "2 of 5 servers are cut off, then 3"

    def enter(self, trial: Trial) -> None:
        """No victim."""

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        for proxy in testbed.redlock[3:]:
            proxy.black_hole()

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        answering = sum(testbed.answers(proxy) for proxy in testbed.redlock)
        self.require(answering == 3, f"{answering} of 5 servers answer")
        return "2 of 5 servers do not answer, then 3"

    def act(self, trial: Trial) -> None:
        self._ask(trial, "two-gone", "sold", 3)
        trial.testbed.redlock[2].black_hole()
        self._ask(trial, "three-gone", "unavailable", 3)
        answering = sum(map(trial.testbed.answers, trial.testbed.redlock))
        self.require(answering == 2, f"{answering} of 5 servers answer, with three cut off")

    def _ask(self, trial: Trial, name: str, wanted: str, times: int) -> None:
        for number in range(1, times + 1):
            outcome = trial.ask_once(f"{name}-{number}")
            if outcome != wanted:
                trial.wrong.append(f"{name}-{number} was answered {outcome}, not {wanted}")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        for proxy in testbed.redlock:
            proxy.pass_on()
