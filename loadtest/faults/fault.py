"""A fault: its steps, in the order in which they run, and what the buyers do meanwhile.

This order shows a broken lock for certain: if the lock lets a rival in next to the victim, both
have read the same stock; then the victim writes, and after it the rival. loadtest/tests/neuters.py
keeps each fault from happening, which `prove` has to notice.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import redis

from loadtest.expected import STOPS
from loadtest.faults import measure
from loadtest.faults.testbed import RIVALS, TTL, VICTIMS, Testbed, wait_for
from loadtest.faults.trial import NotFired, Trial
from loadtest.stack.client import Strategy

#: A dead holder keeps others out for so many ttl at most: its own, and time for them to ask.
SLOWEST = 3


class Fault(ABC):
    """One fault, fired once for all the strategies that it concerns.

    name            as in loadtest/expected.py; with an @, a variant of another fault
    title           what is done, for tables
    stop            the point at which victims stop, unless the strategy has one of its own. Empty:
                    no victim comes, but a first buyer, who opens connections and loads scripts
    grace           seconds that a rival has to get in beside the victim
    ttl             seconds that a lock survives a silent holder. More than TTL where the fault has
                    to take the lock away: it must not end by itself before that
    takes_the_lock  whether even a sound lock is taken away, so that two may hold it and the fence
                    decides
    two_servers     whether two servers grant the lock, each by its own word
    loses_promises  whether what Redis has is lost. Then consumers are killed before the victims
                    buy, and started when the rivals have: else luck decides what is settled by then
    recovery        whether to measure the time from firing to the next sale. Then a victim whose
                    answer is lost does not ask again with its key
    node            the node that it is made on, where it is made on one
    fired_at        when it was fired, by the monotonic clock: since then the recovery is measured
    trials          of the strategies that it concerns
    healing         what puts everything back when the buyers have acted, the last first
    opened          what was started or opened for it, until it is cleaned up
    run             makes the names of products and the keys of attempts unique
    """

    name: str
    title: str
    stop = "after_read"
    grace = TTL + 0.7
    ttl = TTL
    takes_the_lock = False
    two_servers = False
    recovery = False
    loses_promises = False
    node = VICTIMS
    fired_at = 0.0

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.trials: list[Trial] = []
        self.healing, self.opened = ExitStack(), ExitStack()
        self.run = secrets.token_hex(4)

    def tries(self, strategy: Strategy) -> None:
        """Concern this strategy too."""
        stop = STOPS.get(strategy["name"], {}).get(self.name, self.stop)
        self.trials.append(
            Trial(self.testbed, strategy, self.run, fault=self.name, stop=stop, ttl=self.ttl)
        )

    def arm(self) -> None:  # noqa: B027 most need nothing
        """Start what the fault needs. The sales are open; nobody buys yet."""

    def enter(self, trial: Trial) -> None:
        """Send the victim to node A, and wait until it stops at its point."""
        if self.stop:
            trial.victim_enters(asks_again=not self.recovery)
        else:
            self.require_a_sale(trial)

    def fire(self) -> None:  # noqa: B027 for some, time passes or a buyer's request fires them
        """Make it happen. Every victim is stopped at its point."""

    @abstractmethod
    def prove(self) -> str:
        """The evidence that it happened, one sentence without pids and ports. Raises NotFired."""

    def act(self, trial: Trial) -> None:
        """What the buyers do while the fault lasts. Every trial has a thread for it."""
        self.meet(trial)
        self.resume(trial)

    def meet(self, trial: Trial) -> None:
        """Send rivals to node B while the victim is stopped."""
        trial.rival_enters("rival-1", grace=self.grace)

    def resume(self, trial: Trial) -> None:
        """Let the victim go on, then the rivals."""
        trial.resume_victim()
        trial.resume_rivals()

    def meanwhile(self) -> None:  # noqa: B027
        """What is done to the servers while the buyers act. `pause` waits here, and lets its node
        go on."""

    def heal(self) -> None:
        """Put everything back. Called whether the fault fired or not."""
        self.healing.close()

    def clean_up(self) -> None:
        """Put back what has to stay until the sales are judged, and close what was opened. Called
        whether it fired or not."""
        self.opened.close()

    def longest_recovery(self, strategy: Strategy) -> float:
        """Seconds after which somebody has to have bought again, where `recovery` is measured."""
        return SLOWEST * self.ttl

    def lasts(self) -> bool:
        """Whether it is still so, where that can be seen."""
        return True

    def observed(self) -> str:
        """More evidence: what was counted or measured while the buyers acted."""
        return ""

    def measured(self) -> str:
        """How long the victims were stopped, and what their locks' ttl was by PTTL (or by the time
        in them) when they stopped."""
        stopped = [trial.stopped_for for trial in self.trials if trial.stopped_for]
        lives = [trial.lock_ttl for trial in self.trials if trial.lock_ttl is not None]
        found = {"were stopped for": stopped, "had locks with a measured ttl of": lives}
        said = [f"{what} {span(seconds)}" for what, seconds in found.items() if seconds]
        return f"the victims {' and '.join(said)}" if said else ""

    # --- what many faults need --------------------------------------------------------------------

    def require(self, is_so: object, otherwise: str) -> None:
        """Raise NotFired, with what is the case otherwise, unless it is so."""
        if not is_so:
            raise NotFired(f"{self.name}: {otherwise}")

    def require_soon(
        self, condition: Callable[[], object], otherwise: str, seconds: float = 10.0
    ) -> None:
        """Raise NotFired unless the condition holds within so many seconds."""
        self.require(wait_for(condition, seconds), otherwise)

    def require_a_sale(self, trial: Trial, node: int = RIVALS) -> None:
        """Let a first buyer buy: connections are open then, and scripts known."""
        first = trial.ask_once("early", node)
        self.require(first == "sold", f"{trial.lock}: the first buyer was answered {first}")

    def must_be_answered(self, trial: Trial, name: str, *wanted: str, node: int = RIVALS) -> None:
        """Let a new buyer ask once while it lasts: another outcome than one of these is wrong."""
        outcome = trial.ask_once(name, node)
        if outcome not in wanted:
            trial.wrong.append(f"{name} was answered {outcome}, not {' or '.join(wanted)}")
        if not self.lasts():
            trial.miss(f"it was over before {name} was answered")

    def ask(self, *command: Any, timeout: float = 5.0) -> Any:
        """The main Redis's reply to one command, sent past all proxies. Raises RedisError."""
        return measure.ask(self.testbed.main, *command, timeout=timeout)

    def error(self, *command: Any, timeout: float = 5.0) -> str:
        """The error to the same; empty where there is none."""
        try:
            self.ask(*command, timeout=timeout)
        except redis.RedisError as error:
            return str(error)
        return ""

    def count_held(self) -> int:
        """How many victims' locks are on Redis now. A trial whose lock ended by itself before the
        fault shows nothing."""
        held = 0
        for trial in self.trials:
            if trial.orphans():
                held += 1
            elif trial.strategy["backend"] == "redis" and not trial.strategy["reserves"]:
                trial.miss("its lock had ended before the fault")
        return held

    def require_no_lock(self) -> None:
        """Raise NotFired if a victim's lock is on Redis."""
        left = [trial.lock for trial in self.trials if trial.orphans()]
        self.require(not left, f"locks survived: {left}")


def span(seconds: Sequence[float]) -> str:
    """The shortest of these times and the longest; 0 where there are none."""
    return f"{min(seconds, default=0):.2f} to {max(seconds, default=0):.2f} s"
