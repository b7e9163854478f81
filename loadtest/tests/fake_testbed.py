"""A testbed made of facts: what the proofs of faults would measure, without a server."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import redis

from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS, Fault, measure
from loadtest.faults.fault import NotFired
from loadtest.faults.testbed import VICTIMS, Testbed
from loadtest.faults.trial import Trial
from loadtest.stack.client import Shop, ShopUnreachable, Strategy

#: Pids of node A's master and worker. The victims are in the worker.
MASTER, WORKER = 101, 102
NODE_A = (MASTER, WORKER)
T, RUNS, GONE = psutil.STATUS_STOPPED, psutil.STATUS_SLEEPING, psutil.STATUS_DEAD

BACKENDS = {
    "redlock": "redlock",
    "zookeeper": "zookeeper",
    **dict.fromkeys(
        (
            *("advisory", "row-lock", "version", "rollback", "conditional", "serializable"),
            *("buckets", "skip-locked"),
        ),
        "postgresql",
    ),
}
RENEWED = {"token-watchdog", "reentrant", "zookeeper", "redis", "fence-at-write"}


def strategy(name: str) -> Strategy:
    """A strategy as GET /strategies has it."""
    known = {
        "name": name,
        "backend": BACKENDS.get(name, "redis"),
        "reserves": name in {"counter", "reserve"},
        "deferred": name == "reserve",
        "renewed": name in RENEWED,
        "takes_over": name.startswith("setnx-timestamp"),
        "available": True,
    }
    return cast(Strategy, known)


@dataclass
class Facts:
    """What would be measured. The defaults are those of a fault that happened.

    states     of node A's processes
    ttl        seconds that the victims' locks have left
    first      what the victims were answered
    keys       whether the victims' locks are on the server now
    before     the same, before the fault
    run_ids    of the Redis before the fault and after it, and behind the proxies
    role       of the Redis that is the main one now
    ahead      seconds by which the clocks of node A and B are ahead
    answering  how many of Redlock's servers answer, in turn
    dropped    whether the proxy says that it dropped a reply
    orders     of the victim's key, before it asks again
    redis      what the main Redis answers to PING, or its error
    accepts    whether node A accepts new buyers
    code       with which node A ended, None if it runs
    evicted    how many keys Redis evicted
    ended      how many PostgreSQL backends were ended; and how many of those are left
    """

    states: dict[int, str] = field(default_factory=lambda: dict.fromkeys(NODE_A, T))
    ttl: float | None = 1.0
    first: str = "unknown"
    keys: bool = False
    before: bool = True
    run_ids: tuple[str, str, str] = ("old", "new", "new")
    role: str = "master"
    ahead: tuple[float, float] = (0.0, 60.0)
    answering: tuple[int, ...] = (3, 2)
    dropped: bool = True
    orders: int = 1
    redis: object = True
    accepts: bool = False
    code: int | None = None
    evicted: int = 26
    ended: int = 24
    left: int = 0


class Buyer:
    """A victim that has its first answer."""

    def __init__(self, first: str, attempt: str) -> None:
        self.first, self.attempt, self.stop = first, attempt, ""
        self.reply = SimpleNamespace(order=1)
        self.answered = threading.Event()
        self.started = False
        self.replayed = True

    def join(self, seconds: float) -> bool:
        return bool(self.first)

    def ask(self, shop: object) -> str:
        return self.first

    def take(self, reply: object) -> None: ...


class FakeTestbed:
    """Answers what the proofs ask, from the facts."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.log = io.BytesIO()
        proxy = SimpleNamespace(black_hole=lambda: None, pass_on=lambda: None)
        self.redis = self.redlock = [proxy] * 5
        self.zookeeper = SimpleNamespace(hosts="zookeeper:0")
        self.main = SimpleNamespace(name="main")
        self.valkeys = [self.main] * 6
        self.answering = list(facts.answering)
        dead = SimpleNamespace(poll=lambda: facts.code, returncode=facts.code)
        self.nodes = [SimpleNamespace(url="A", process=dead), SimpleNamespace(url="B")]
        rule = SimpleNamespace(wait=lambda seconds: facts.dropped, cancel=lambda: None)
        self.postgres = SimpleNamespace(lose_reply=lambda *_, **__: rule)

    def pids(self, node: int) -> list[int]:
        return [pid for pid, state in self.facts.states.items() if state != GONE]

    def pid_at(self, attempt: str, point: str) -> int:
        return WORKER

    def shop(self, node: int = VICTIMS) -> Any:
        return self

    def orders(self, sale: int) -> list[dict[str, Any]]:
        return []

    def ready(self) -> bool:
        if self.facts.run_ids[2] != self.facts.run_ids[1]:
            raise ShopUnreachable("the old master is dead")
        return True

    def answers(self, proxy: object) -> bool:
        """Asked for all five servers, as often as the facts have a number for it."""
        self.asked = getattr(self, "asked", 0) + 1
        return (self.asked - 1) % 5 < self.answering[(self.asked - 1) // 5]

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return [(pid,) for pid in range(self.facts.left)]

    def ask(self, server: object, *command: Any, **_: Any) -> Any:
        facts = self.facts
        if isinstance(facts.redis, Exception):
            raise facts.redis
        if command[0] == "INFO":
            return {
                "role": facts.role,
                "run_id": facts.run_ids[1],
                "evicted_keys": facts.evicted,
            }
        if command[0] == "CLIENT LIST":
            return [{"id": "7", "cmd": "set"}] * (facts.first == "sold")
        return facts.redis

    def record_fault(self, *_: object) -> None: ...


def made(name: str, facts: Facts, patch: pytest.MonkeyPatch) -> tuple[Fault, Any, list[Trial]]:
    """A fault that was made for all strategies that it concerns, with these facts to be found."""
    testbed = FakeTestbed(facts)
    fault = FAULTS[name]()
    patch.setattr(fault, "require_soon", lambda condition, why, *_: fault.require(condition(), why))
    patch.setattr(measure, "states_of", lambda pids: {pid: facts.states[pid] for pid in pids})
    patch.setattr(measure, "run_id", lambda proxy: facts.run_ids[2])
    patch.setattr(Shop, "is_open", lambda shop: facts.accepts)
    patch.setattr(measure, "clock_ahead", lambda url: facts.ahead["AB".index(url)])
    patch.setattr(measure, "lock_keys", lambda *_: ["lock:x"] if facts.keys else [])
    patch.setattr(measure, "session_seconds", lambda hosts: facts.ttl)
    patch.setattr(measure, "seconds_left", lambda _, one, __: facts.ttl if _ends(one) else None)
    concerned = [lock for lock, row in EXPECTED.items() if name in row]
    trials = [Trial(cast(Testbed, testbed), fault, strategy(lock), "run") for lock in concerned]
    for trial in trials:
        trial.victim = cast(Any, Buyer(facts.first, f"{trial.attempts}/victim"))
        trial.measure_ttl()
    return fault, testbed, trials


def _ends(strategy: dict[str, Any]) -> bool:
    """Whether the strategy has a lock that ends by itself."""
    if strategy["name"] in {"setnx", "counter", "reserve"}:
        return False
    return strategy["backend"] in {"redis", "redlock", "zookeeper"}


def missing(trials: Sequence[Trial], prove: Any) -> dict[str, str]:
    """By strategy: why its trial shows nothing after this proof; empty where it shows something."""
    try:
        prove()
    except NotFired as error:
        for trial in trials:
            trial.miss(str(error))
    return {trial.lock: trial.missing for trial in trials}


def down() -> Exception:
    return redis.ConnectionError("refused")
