"""Lesson 10: which locks keep their promise under which fault."""

from __future__ import annotations

from types import ModuleType

from loadtest.expected import EXPECTED
from workshop.refusal import Refusal

#: Cell -> what somebody believes who answers it wrong.
BELIEFS = {
    ("token", "failover"): "replication-keeps-it",
    ("token-watchdog", "restart"): "a-restart-keeps-it",
    ("redlock", "pause"): "majority-is-a-fence",
    ("redlock", "restart"): "majority-remembers",
    ("zookeeper", "pause"): "consensus-is-a-fence",
    ("redis", "failover"): "fence-needs-redis",
    ("setnx", "eviction"): "eviction-takes-all",
    ("row-lock", "redis-down"): "row-lock-needs-redis",
}
WORDS = ("exact", "oversold", "deadlock")


def refusal(module: ModuleType) -> Refusal | None:
    """The first answer that is wrong, or is none."""
    answers = dict(getattr(module, "ANSWERS", {}))
    if not any(answers.values()):
        return Refusal("todo")
    for (lock, fault), belief in BELIEFS.items():
        said = answers.get((lock, fault))
        if said not in WORDS:
            return Refusal("not-a-verdict", {"lock": lock, "fault": fault, "said": said})
        if said != EXPECTED[lock][fault]:
            return Refusal(belief, {"said": said})
    return None
