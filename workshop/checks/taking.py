"""Lessons 3 to 5: how a lock is taken, how it ends where its holder dies, and how it is freed."""

import time
from functools import partial
from types import ModuleType
from typing import Any

from workshop.checks.probe import LONG, RECOVERED_WITHIN, TTL, Probe, probed
from workshop.refusal import Refusal, Undecided

#: Parts of the ttl within which a lock lives as long as it was asked to: Redis rounds.
SHORTEST, LONGEST = 0.95, 1.05
#: Part of the ttl below which its unit is wrong.
ANOTHER_UNIT = 0.2
#: Seconds that a holder and a contender have before the lock may end, and how often a busy machine
#: tries to be so quick.
QUICK, TRIES = TTL / 1.2, 10


def one_command(module: ModuleType) -> Refusal | None:
    """Lesson 3: one command decides who has the lock, for every process that asks."""
    return probed(module, _seen_by_others, _let_in_beside, _given_back, _in_between)


def ending(module: ModuleType) -> Refusal | None:
    """Lesson 4: the lock of a dead holder ends by itself, wherever its holder died."""
    return probed(module, _lives, _let_in_beside, _in_between, _waiters, _deaths)


def release(module: ModuleType) -> Refusal | None:
    """Lesson 5: a late holder frees nothing but its own lock, and says whether it did."""
    return probed(module, _own, _late, _freed_in_between)


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


def _let_in_beside(probe: Probe) -> Refusal | None:
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


def _in_between(probe: Probe) -> Refusal | None:
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
    """A contender who is refused gives the holder's lock no new time. Raises Undecided where the
    lock may have ended meanwhile, however often it is tried."""
    for _ in range(TRIES):
        began = time.monotonic()
        lock = probe.lock(ttl=TTL)
        lock.try_lock("a")
        time.sleep(TTL / 3)
        before = int(probe.plain.pttl(lock.key))
        probe.again(lock).try_lock("b")
        after = int(probe.plain.pttl(lock.key))
        if time.monotonic() - began < QUICK:
            break
    else:
        raise Undecided(f"nothing was done within {QUICK:.2f} s: this machine is too busy")
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


def _freed_in_between(probe: Probe) -> Refusal | None:
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
