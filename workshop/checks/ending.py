"""Lesson 4: the lock of a dead holder ends by itself, wherever its holder died."""

from __future__ import annotations

import time
from functools import partial
from types import ModuleType

from workshop.checks.probe import RECOVERED_WITHIN, TTL, Probe, probed
from workshop.refusal import Refusal

#: Milliseconds.
TTL_MS = round(TTL * 1000)


def refusal(module: ModuleType) -> Refusal | None:
    """What is wrong with the lock of this file; None if nothing is."""
    return probed(module, _find)


def _find(probe: Probe) -> Refusal | None:
    return (
        probe.quickly(TTL / 2.5, lambda: _alone(probe))
        or probe.quickly(TTL / 1.2, lambda: _waiters(probe))
        or _deaths(probe)
    )


def _alone(probe: Probe) -> Refusal | None:
    """One holder, nobody else: is the lock there, and how long will it live?"""
    lock = probe.lock(probe.name())
    if not lock.try_lock("a"):
        return probe.refuse("never-acquires")
    left = int(probe.plain.pttl(lock.key))
    probe.says(f"A has the lock; PTTL says {left}")
    if left == -1:
        return probe.refuse("no-end")
    if left < TTL_MS / 2:  # it took less time until it was asked: see quickly()
        return probe.refuse("wrong-unit", left=max(left, 0), ttl=TTL_MS)
    if left > 3 * TTL_MS:
        return probe.refuse("too-long", left=left, ttl=TTL_MS)
    if probe.lock(lock.name.removeprefix("probe-")).try_lock("b"):
        probe.says("B asks, and has it too")
        return probe.refuse("always-true")
    return None


def _waiters(probe: Probe) -> Refusal | None:
    """A contender who is refused gives the holder's lock no new time."""
    name = probe.name()
    lock = probe.lock(name)
    lock.try_lock("a")
    time.sleep(TTL / 3)
    before = int(probe.plain.pttl(lock.key))
    probe.lock(name).try_lock("b")
    after = int(probe.plain.pttl(lock.key))
    probe.says(f"A holds it, PTTL {before}; B asks and is refused, PTTL {after}")
    return probe.refuse("waiters-renew", before=before, after=after) if after > before else None


def _deaths(probe: Probe) -> Refusal | None:
    """Kill a holder after each of its commands: somebody else has the lock in time."""
    commands = probe.commands_of(partial(probe.lock(probe.name()).try_lock, "a"))
    for number in range(1, commands + 1):
        name = probe.name()
        if not probe.dies_after(number, partial(probe.lock(name).try_lock, "a")):
            continue
        left = int(probe.plain.pttl(probe.lock(name).key))
        probe.says(f"A is killed after command {number} of {commands}; PTTL says {left}")
        deadline = time.monotonic() + RECOVERED_WITHIN
        while True:
            asked = time.monotonic()
            if probe.lock(name).try_lock("b"):
                break
            if asked > deadline:
                probe.says(f"B has asked for {RECOVERED_WITHIN:.1f} s, and is still refused")
                return probe.refuse("crash-between", command=number, left=left)
            time.sleep(0.02)
    return None
