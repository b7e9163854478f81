"""Lesson 3: one command decides who has the lock, for every process that asks."""

from __future__ import annotations

from functools import partial
from types import ModuleType

from workshop.checks.probe import Probe, at_command, hook, probed
from workshop.refusal import Refusal

#: Seconds; nothing ends by itself here.
LONG = 60.0


def refusal(module: ModuleType) -> Refusal | None:
    """What is wrong with the lock of this file; None if nothing is."""
    return probed(module, _find)


def _find(probe: Probe) -> Refusal | None:
    name = probe.name()
    lock = probe.lock(name, ttl=LONG)
    if not lock.try_lock("a"):
        return probe.refuse("never-acquires")
    probe.says("A has the lock")
    if not probe.plain.exists(lock.key):
        probe.says("Redis has no key of that name: no other process can see it")
        return probe.refuse("still-in-one-process")
    if probe.lock(name, ttl=LONG).try_lock("b"):
        probe.says("B asks, and has it too")
        return probe.refuse("always-true")
    lock.unlock("a")
    if not probe.lock(name, ttl=LONG).try_lock("b"):
        probe.says("A gave it back; B asks, and is refused")
        return probe.refuse("never-released")
    return _in_between(probe)


def _in_between(probe: Probe) -> Refusal | None:
    """Somebody else comes in after each command of taking the lock but the last."""
    commands = probe.commands_of(partial(probe.lock(probe.name(), ttl=LONG).try_lock, "a"))
    for number in range(1, commands):
        name = probe.name()
        let_in: list[bool] = []

        def rival(name: str = name, number: int = number, let_in: list[bool] = let_in) -> None:
            let_in.append(bool(probe.lock(name, ttl=LONG).try_lock("b")))
            probe.says(f"A stops after command {number}; B asks: {let_in[0]}")

        with hook(at_command(number, rival)):
            has_it = probe.lock(name, ttl=LONG).try_lock("a")
        if has_it and any(let_in):
            probe.says("A goes on, and has it too")
            return probe.refuse("check-then-set", command=number)
    return None
