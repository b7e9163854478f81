"""Lesson 5: a late holder frees nothing but its own lock, and says whether it did."""

from functools import partial
from types import ModuleType
from typing import Any

from workshop.checks.probe import LONG, Probe, at_command, probed
from workshop.refusal import Refusal


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault of this file's lock, or None."""
    return probed(module, _find)


def _find(probe: Probe) -> Refusal | None:
    return _own(probe) or _late(probe) or _in_between(probe)


def _own(probe: Probe) -> Refusal | None:
    """A holder gives its own lock back."""
    lock = probe.lock(probe.name(), ttl=LONG)
    if not lock.try_lock("a"):
        return probe.refuse("never-acquires")
    said = bool(lock.unlock("a"))
    probe.says(f"A has the lock and gives it back: unlock() says {said}")
    if probe.plain.exists(lock.key):
        probe.says("its key is still there")
        if said:
            return probe.refuse("never-released")
        by_script = any(name.startswith("EVAL") for name in lock.client.sent)
        return probe.refuse("script-arguments" if by_script else "bytes-and-str")
    return None if said else probe.refuse("denies")


def _late(probe: Probe) -> Refusal | None:
    """A's lock has ended and B has it. A gives back what it believes to be its own."""
    lock, other = _changed_hands(probe)
    of_b = probe.plain.get(other.key)
    said = bool(lock.unlock("a"))
    left = probe.plain.get(other.key)
    if left is None:
        probe.says("A, who is late, gives it back: B's lock is gone")
        same = _value_of(probe, "a") == _value_of(probe, "b")
        return probe.refuse("value-not-unique" if same and of_b else "deletes-blindly")
    probe.says(f"A, who is late, gives it back: unlock() says {said}, B's lock is there")
    return probe.refuse("lies") if said else None


def _in_between(probe: Probe) -> Refusal | None:
    """The lock changes hands after each command of the release but the last."""
    lock = probe.lock(probe.name(), ttl=LONG)
    lock.try_lock("a")
    commands = probe.commands_of(partial(lock.unlock, "a"))
    for number in range(1, commands):
        name = probe.name()
        lock = probe.lock(name, ttl=LONG)
        lock.try_lock("a")
        probe.says("A has the lock")

        def change(name: str = name, number: int = number) -> None:
            probe.plain.delete(probe.lock(name).key)
            probe.lock(name, ttl=LONG).try_lock("b")
            probe.says(f"A stops after command {number} of its release; its lock ends, B takes it")

        with at_command(number, change):
            lock.unlock("a")
        if not probe.plain.exists(lock.key):
            probe.says("A goes on, and so deletes the lock of B")
            return probe.refuse("not-atomic-release", command=number, commands=commands)
    return None


def _changed_hands(probe: Probe) -> tuple[Any, Any]:
    """A's lock object and B's: A held it, now B does."""
    name = probe.name()
    lock, other = probe.lock(name, ttl=LONG), probe.lock(name, ttl=LONG)
    lock.try_lock("a")
    probe.plain.delete(lock.key)
    other.try_lock("b")
    probe.says("A had the lock; it ended, and B has it now")
    return lock, other


def _value_of(probe: Probe, token: str) -> bytes | None:
    lock = probe.lock(probe.name(), ttl=LONG)
    lock.try_lock(token)
    value: bytes | None = probe.plain.get(lock.key)
    return value
