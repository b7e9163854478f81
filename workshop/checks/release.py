"""Lesson 5: a late holder frees nothing but its own lock, and says whether it did."""

from types import ModuleType
from typing import Any

from workshop.checks.probe import Probe, probed
from workshop.refusal import Refusal


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault of this file's lock, or None."""
    return probed(module, _own, _late, _in_between)


def _own(probe: Probe) -> Refusal | None:
    """A holder gives its own lock back."""
    lock = probe.lock()
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
    lock = probe.lock()
    lock.try_lock("a")
    of_a = probe.plain.dump(lock.key)
    _changes_hands(probe, lock)
    probe.says("A had the lock; it ended, and B has it now")
    of_b = probe.plain.dump(lock.key)
    said = bool(lock.unlock("a"))
    if not probe.plain.exists(lock.key):
        probe.says("A, who is late, gives it back: B's lock is gone")
        return probe.refuse("value-not-unique" if of_b and of_a == of_b else "deletes-blindly")
    probe.says(f"A, who is late, gives it back: unlock() says {said}, B's lock is there")
    return probe.refuse("lies") if said else None


def _in_between(probe: Probe) -> Refusal | None:
    """The lock changes hands after each command of the release but the last."""

    def change(lock: Any, number: int) -> None:
        _changes_hands(probe, lock)
        probe.says("A has the lock")
        probe.says(f"A stops after command {number} of its release; its lock ends, B takes it")

    for lock, _, facts in probe.in_between(
        lambda lock: lock.unlock("a"), change, begins=lambda lock: lock.try_lock("a")
    ):
        if not probe.plain.exists(lock.key):
            probe.says("A goes on, and so deletes the lock of B")
            return probe.refuse("not-atomic-release", **facts)
    return None


def _changes_hands(probe: Probe, lock: Any) -> None:
    """A's lock ends, and B takes it."""
    probe.plain.delete(lock.key)
    probe.again(lock).try_lock("b")
