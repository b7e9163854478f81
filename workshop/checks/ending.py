"""Lesson 4: the lock of a dead holder ends by itself, wherever its holder died."""

import time
from functools import partial
from types import ModuleType

from workshop.checks.one_command import in_between, let_in_beside
from workshop.checks.probe import LONG, RECOVERED_WITHIN, TTL, Probe, probed
from workshop.refusal import Refusal

#: Parts of the ttl within which a lock lives as long as it was asked to: Redis rounds.
SHORTEST, LONGEST = 0.95, 1.05
#: Part of the ttl below which its unit is wrong.
ANOTHER_UNIT = 0.2


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault of this file's lock, or None."""
    return probed(module, _lives, let_in_beside, in_between, _waiters, _deaths)


def _lives(probe: Probe) -> Refusal | None:
    """One holder, nobody else: for how long will its lock live?"""
    lock = probe.lock()
    ttl = round(LONG * 1000)
    if not lock.try_lock("a"):
        return probe.refuse("never-acquires")
    left = max(int(probe.plain.pttl(lock.key)), -1)
    probe.says(f"A has the lock for {ttl} ms; PTTL says {left}")
    if left == -1 and probe.plain.exists(lock.key):
        code = "no-end"
    elif left < ANOTHER_UNIT * ttl:
        code = "wrong-unit"
    elif left < SHORTEST * ttl:
        code = "too-short"
    elif left > LONGEST * ttl:
        code = "too-long"
    else:
        return None
    return probe.refuse(code, left=max(left, 0), ttl=ttl)


def _waiters(probe: Probe) -> Refusal | None:
    """A contender who is refused gives the holder's lock no new time."""
    return probe.quickly(TTL / 1.2, lambda: _one_waiter(probe))


def _one_waiter(probe: Probe) -> Refusal | None:
    lock = probe.lock(ttl=TTL)
    lock.try_lock("a")
    time.sleep(TTL / 3)
    before = int(probe.plain.pttl(lock.key))
    probe.again(lock).try_lock("b")
    after = int(probe.plain.pttl(lock.key))
    probe.says(f"A holds it, PTTL {before}; B asks and is refused, PTTL {after}")
    return probe.refuse("waiters-renew", before=before, after=after) if after > before else None


def _deaths(probe: Probe) -> Refusal | None:
    """Kill a holder after each of its commands: somebody else has the lock in time."""
    commands = probe.commands_of(partial(probe.lock(ttl=TTL).try_lock, "a"))
    for number in range(1, commands + 1):
        lock = probe.lock(ttl=TTL)
        if not probe.dies_after(number, partial(lock.try_lock, "a")):
            continue
        left = int(probe.plain.pttl(lock.key))
        probe.says(f"A is killed after command {number} of {commands}; PTTL says {left}")
        deadline = time.monotonic() + RECOVERED_WITHIN
        while True:
            asked = time.monotonic()
            if probe.again(lock).try_lock("b"):
                break
            if asked > deadline:
                probe.says(f"B has asked for {RECOVERED_WITHIN:.1f} s, and is still refused")
                return probe.refuse("crash-between", command=number, left=left)
            time.sleep(0.02)
    return None
