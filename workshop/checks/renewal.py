"""Lesson 7: a lock that is renewed for as long as its holder works, and never for anybody else."""

from __future__ import annotations

import time
from types import ModuleType

import redis

from workshop.checks.probe import Probe, probed
from workshop.refusal import Refusal, Undecided

#: Seconds. Long enough for a busy laptop: a third of it is the slack of a right answer.
TTL = 1.2
TTL_MS = round(TTL * 1000)
#: Part of the ttl by which a renewal may be late before nothing can be said.
LATE = 0.2


def refusal(module: ModuleType) -> Refusal | None:
    """What is wrong with the renewal; None if nothing is."""
    return probed(
        module,
        lambda probe: probe.quickly(TTL / 4, lambda: _of_others(probe)) or _while_it_works(probe),
    )


def _of_others(probe: Probe) -> Refusal | None:
    """A renewal that comes when the lock is somebody else's, or nobody's."""
    lock = probe.lock(probe.name(), ttl=TTL)
    probe.plain.set(lock.key, "b", px=TTL_MS // 4)
    said = bool(lock.renew("a"))
    left = int(probe.plain.pttl(lock.key))
    probe.says(f"B has the lock for {TTL_MS // 4} ms; A renews: renew() says {said}, PTTL {left}")
    if left > TTL_MS // 4:
        return probe.refuse("renews-anybody", left=left)
    probe.plain.delete(lock.key)
    said = bool(lock.renew("a")) or said
    probe.says(f"nobody has it; A renews: renew() says {said}")
    if probe.plain.exists(lock.key):
        return probe.refuse("resurrects")
    probe.plain.set(lock.key, "a", px=TTL_MS // 4)
    still = bool(lock.renew("a"))
    left = int(probe.plain.pttl(lock.key))
    probe.says(f"A has it for {TTL_MS // 4} ms and renews: renew() says {still}, PTTL {left}")
    if left <= TTL_MS // 4:
        return probe.refuse("expires", left=left, ttl=TTL_MS)
    if left > 3 * TTL_MS:
        return probe.refuse("just-longer", left=left, ttl=TTL_MS)
    if said or not still:
        return probe.refuse("says-the-wrong-thing")
    return None


def _while_it_works(probe: Probe) -> Refusal | None:
    """The first renewal is lost on its way; the next one must come before the end of the lock."""
    lock = probe.lock(probe.name(), ttl=TTL)
    began = time.monotonic()
    came: list[float] = []
    renew = lock.renew

    def unreliable(token: str) -> bool:
        came.append(time.monotonic() - began)
        if len(came) == 1:
            raise redis.ConnectionError("this renewal is lost on its way")
        return bool(renew(token))

    lock.renew = unreliable
    lease = lock.acquire(0)
    time.sleep(1.6 * TTL)
    kept = probe.plain.get(lock.key) is not None
    lease.release()
    times = ", ".join(f"{at:.2f}" for at in came) or "never"
    probe.says(
        f"A works for {1.6 * TTL:.1f} s, ttl {TTL:g} s; renewals at {times}, the first is lost"
    )
    if kept:
        return None
    period = came[0] if came else TTL
    late = max((at - period * (n + 1) for n, at in enumerate(came)), default=0.0)
    if late > LATE * TTL:
        raise Undecided(f"this machine woke the renewal {late:.1f} s late")
    probe.says("the lock has ended while A was working")
    return probe.refuse("no-slack", period=round(period, 2), ttl=TTL)
