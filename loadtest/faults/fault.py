"""The base class of the faults: their steps, in the order in which these run.

This order always exposes a broken lock: a rival that the lock lets in next to the victim has read
the same stock; then the victim writes, and after it the rival. The faults of
loadtest/tests/weakened_faults.py only appear to happen, and `prove` must reject each of them.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import psycopg
import redis

from loadtest.expected import STOPS
from loadtest.faults import measure
from loadtest.faults.testbed import RIVALS, TTL, VICTIMS, Testbed, wait_for
from loadtest.faults.trial import NotFired, Trial
from loadtest.stack.client import StrategyFacts

#: Upper bound, in multiples of the ttl, on how long a dead holder blocks others.
LONGEST_RECOVERY_IN_TTLS = 3


class Fault(ABC):
    """One fault, fired once for all the strategies that it concerns.

    name            as in loadtest/expected.py; with an @, a variant of another fault
    title           what is done, for tables
    stop            the point at which victims stop, unless the strategy names another. Empty:
                    no victim comes, but a first buyer, who opens connections and loads scripts
    grace           seconds that a rival has to get in besides the victim
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

    def add_trial(self, strategy: StrategyFacts) -> None:
        """Add a trial of this strategy."""
        stop = STOPS.get(strategy["name"], {}).get(self.name, self.stop)
        self.trials.append(
            Trial(self.testbed, strategy, self.run, fault=self.name, stop=stop, ttl=self.ttl)
        )

    def arm(self) -> None:  # noqa: B027 most need nothing
        """Start what the fault needs. The sales are open; no buyer has come yet."""

    def enter(self, trial: Trial) -> None:
        """Send the victim to node A, and wait until it stops at its point."""
        if self.stop:
            trial.victim_enters(asks_again=not self.recovery)
        else:
            self.require_a_sale(trial)

    def fire(self) -> None:  # noqa: B027 for some, time passes or a buyer's request fires them
        """Make the fault happen. Every victim is stopped at its point."""

    @abstractmethod
    def prove(self) -> str:
        """Return the evidence in one sentence, without pids and ports. Raises NotFired."""

    def act(self, trial: Trial) -> None:
        """Let a trial's buyers act while the fault lasts; called in a thread for each trial."""
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
        """Act on the servers while the buyers act.

        `pause` waits here before it resumes its node.
        """

    def heal(self) -> None:
        """Undo the fault. Called whether it fired or not."""
        self.healing.close()

    def clean_up(self) -> None:
        """Undo what must stay until the sales are judged, and close what was opened.

        Called whether the fault fired or not.
        """
        self.opened.close()

    def longest_recovery(self, strategy: StrategyFacts) -> float:
        """Return the seconds within which a buyer must have bought again, if that is measured."""
        return LONGEST_RECOVERY_IN_TTLS * self.ttl

    def lasts(self) -> bool:
        """Return whether the fault is still in effect, as far as it can be observed."""
        return True

    def observed(self) -> str:
        """Return further evidence that was counted or measured while the buyers acted."""
        return ""

    def measured(self) -> str:
        """Return how long the victims were stopped, and the measured ttl of their locks."""
        stopped = [trial.stopped_for for trial in self.trials if trial.stopped_for]
        lives = [trial.lock_ttl for trial in self.trials if trial.lock_ttl is not None]
        clauses = []
        if stopped:
            clauses.append(f"were stopped for {span(stopped)}")
        if lives:
            clauses.append(f"had locks with a measured ttl of {span(lives)}")
        if not clauses:
            return ""
        return f"the victims {' and '.join(clauses)}"

    # --- what many faults need --------------------------------------------------------------------

    def require(self, condition: object, message: str) -> None:
        """Raise NotFired with `message` unless `condition` is true."""
        if not condition:
            raise NotFired(f"{self.name}: {message}")

    def require_soon(
        self, condition: Callable[[], object], message: str, seconds: float = 10.0
    ) -> None:
        """Raise NotFired with `message` unless the condition holds within `seconds`."""
        self.require(wait_for(condition, seconds), message)

    def require_a_sale(self, trial: Trial, node: int = RIVALS) -> None:
        """Let a first buyer buy, so that connections are open and Redis knows the scripts."""
        first = trial.ask_once("early", node)
        self.require(first == "sold", f"{trial.lock}: the first buyer was answered {first}")

    def must_be_answered(self, trial: Trial, name: str, *outcomes: str, node: int = RIVALS) -> None:
        """Let a new buyer ask once during the fault; any outcome but `outcomes` is wrong."""
        outcome = trial.ask_once(name, node)
        if outcome not in outcomes:
            trial.wrong.append(f"{name} was answered {outcome}, not {' or '.join(outcomes)}")
        if not self.lasts():
            trial.miss(f"it was over before {name} was answered")

    def ask(self, *command: Any, timeout: float = 5.0) -> Any:
        """Return the main Redis's reply to a command, sent past all proxies. Raises RedisError."""
        return measure.ask(self.testbed.main, *command, timeout=timeout)

    def error(self, *command: Any, timeout: float = 5.0) -> str:
        """Return the error of a command to the main Redis; empty if it succeeds."""
        try:
            self.ask(*command, timeout=timeout)
        except redis.RedisError as error:
            return str(error)
        return ""

    def open_postgres_probe(self) -> psycopg.Connection[Any]:
        """Connect to PostgreSQL through node A's proxy, until the fault is cleaned up."""
        url = self.testbed.database_url
        connection = psycopg.connect(url, host=self.testbed.database_proxy.address, autocommit=True)
        self.opened.callback(connection.close)
        return connection

    def count_held(self) -> int:
        """Return how many victims' locks are on Redis now.

        A trial whose lock has already ended by itself proves nothing.
        """
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
    """Return the shortest and the longest of these times as text; 0 if there are none."""
    return f"{min(seconds, default=0):.2f} to {max(seconds, default=0):.2f} s"
