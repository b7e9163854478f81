"""Lesson 3: one command decides who has the lock, for every process that asks."""

from functools import partial
from types import ModuleType

from workshop.checks.probe import LONG, Probe, at_command, probed
from workshop.refusal import Refusal


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault of this file's lock, or None."""
    return probed(module, _find)


def _find(probe: Probe) -> Refusal | None:
    return _seen_by_others(probe) or let_in_beside(probe) or _given_back(probe) or in_between(probe)


def _seen_by_others(probe: Probe) -> Refusal | None:
    """The lock is a key in Redis, of the name that every process knows."""
    lock = probe.lock(probe.name(), ttl=LONG)
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
    name = probe.name()
    probe.lock(name, ttl=LONG).try_lock("a")
    if probe.lock(name, ttl=LONG).try_lock("b"):
        probe.says("A has the lock; B asks, and has it too")
        return probe.refuse("always-true")
    if probe.lock(name, ttl=LONG).try_lock("c"):
        probe.says("A has the lock; B asks and is refused; C asks, and has it too")
        return probe.refuse("loser-unlocks")
    return None


def _given_back(probe: Probe) -> Refusal | None:
    """The next one has the lock that was given back."""
    name = probe.name()
    lock = probe.lock(name, ttl=LONG)
    lock.try_lock("a")
    lock.unlock("a")
    if probe.lock(name, ttl=LONG).try_lock("b"):
        return None
    probe.says("A gave the lock back; B asks, and is refused")
    return probe.refuse("never-released")


def in_between(probe: Probe) -> Refusal | None:
    """Somebody else comes in after each command of taking the lock but the last."""
    commands = probe.commands_of(partial(probe.lock(probe.name(), ttl=LONG).try_lock, "a"))
    for number in range(1, commands):
        name = probe.name()
        let_in: list[bool] = []

        def rival(name: str = name, number: int = number, let_in: list[bool] = let_in) -> None:
            let_in.append(bool(probe.lock(name, ttl=LONG).try_lock("b")))
            probe.says(f"A stops after command {number}; B asks: {let_in[0]}")

        with at_command(number, rival):
            has_it = probe.lock(name, ttl=LONG).try_lock("a")
        if has_it and any(let_in):
            probe.says("A goes on, and has it too")
            return probe.refuse("check-then-set", command=number)
    return None
