"""Lesson 3: one command decides who has the lock, for every process that asks."""

from types import ModuleType
from typing import Any

from workshop.checks.probe import Probe, probed
from workshop.refusal import Refusal


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault of this file's lock, or None."""
    return probed(module, _seen_by_others, let_in_beside, _given_back, in_between)


def _seen_by_others(probe: Probe) -> Refusal | None:
    """The lock is a key in Redis, of the name that every process knows."""
    lock = probe.lock()
    before = set(probe.plain.keys())
    if not lock.try_lock("a"):
        return probe.refuse("never-acquires")
    probe.says("A has the lock")
    if probe.plain.exists(lock.key):
        return None
    others = [key.decode() for key in set(probe.plain.keys()) - before]
    if others:
        probe.says(f"Redis has no key {lock.key}, but {others[0]}")
        return probe.refuse("another-key", key=lock.key, other=others[0])
    probe.says("Redis has no key: no other process can see it")
    return probe.refuse("still-in-one-process")


def let_in_beside(probe: Probe) -> Refusal | None:
    """A has the lock: B is refused, and C after B."""
    lock = probe.lock()
    lock.try_lock("a")
    if probe.again(lock).try_lock("b"):
        probe.says("A has the lock; B asks, and has it too")
        return probe.refuse("always-true")
    if probe.again(lock).try_lock("c"):
        probe.says("A has the lock; B asks and is refused; C asks, and has it too")
        return probe.refuse("loser-unlocks")
    return None


def _given_back(probe: Probe) -> Refusal | None:
    """The next one has the lock that was given back."""
    lock = probe.lock()
    lock.try_lock("a")
    lock.unlock("a")
    if probe.again(lock).try_lock("b"):
        return None
    probe.says("A gave the lock back; B asks, and is refused")
    return probe.refuse("never-released")


def in_between(probe: Probe) -> Refusal | None:
    """Somebody else comes in after each command of taking the lock but the last."""
    let_in: list[bool] = []

    def rival(lock: Any, number: int) -> None:
        let_in.append(bool(probe.again(lock).try_lock("b")))
        probe.says(f"A stops after command {number}; B asks: {let_in[-1]}")

    for _, has_it, facts in probe.in_between(lambda lock: lock.try_lock("a"), rival):
        if has_it and any(let_in):
            probe.says("A goes on, and has it too")
            return probe.refuse("check-then-set", **facts)
        let_in.clear()
    return None
