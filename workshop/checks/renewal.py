"""Lesson 7: a lock that is renewed for as long as its holder works, and never for anybody else."""

import time
from numbers import Real
from types import ModuleType
from typing import Any

from workshop.checks.probe import LONG, SECONDS_AHEAD, Probe, clock_ahead, probed
from workshop.refusal import Refusal, Undecided

#: Milliseconds that a lock still has where nothing shall end by itself, and of a whole ttl.
BEFORE, WHOLE = 15_000, round(LONG * 1000)
#: Parts of the ttl within which a renewed lock lives as long as it was asked to: Redis rounds.
SHORTEST, LONGEST = 0.95, 1.05
#: Seconds that are no whole number, and how often a busy machine tries to be quick.
FRACTIONS, TRIES = (0.7, 1.25, 1.75), 10
#: Milliseconds by which a machine may be late.
SLOW = 5_000
#: Seconds. Long enough for a busy laptop: a third of it is the slack of a right answer.
TTL = 1.2
#: Part of the ttl by which a renewal may be late before nothing can be said.
LATE = 0.2
#: Renewals in one ttl above which Redis does little else.
MOST = 100


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault of the renewal, or None."""
    return probed(module, _alone, _clock_ahead, _fractions, _in_between, _at_work)


def _alone(probe: Probe) -> Refusal | None:
    """A renewal that comes when the lock is another holder's, free, or its own."""
    lock = probe.lock()
    probe.plain.set(lock.key, "b", px=BEFORE)
    of_another = lock.renew("a")
    value = probe.plain.get(lock.key)
    left = int(probe.plain.pttl(lock.key))
    probe.says(
        f"B has the lock for {BEFORE} ms; A renews: renew() says {of_another!r}, PTTL {left}"
    )
    if value is not None and value != b"b":
        probe.says(f"the key held b, B's token; now it holds {value.decode(errors='replace')}")
        return probe.refuse("takes-over", left=left)
    if not _as_it_was(probe, lock.key):
        return probe.refuse("renews-anybody", left=left)
    probe.plain.delete(lock.key)
    of_nobody = lock.renew("a")
    probe.says(f"nobody has it; A renews: renew() says {of_nobody!r}")
    if probe.plain.exists(lock.key):
        return probe.refuse("resurrects")
    probe.plain.set(lock.key, "a", px=BEFORE)
    lock.client.forget_sent()
    of_its_own = lock.renew("a")
    left = int(probe.plain.pttl(lock.key))
    probe.says(f"A has it for {BEFORE} ms and renews: renew() says {of_its_own!r}, PTTL {left}")
    facts = {"before": BEFORE, "left": left, "ttl": WHOLE, "returned": repr(of_its_own)}
    if left == -1 or left > WHOLE * LONGEST:
        return probe.refuse("just-longer", **facts)
    if BEFORE - SLOW < left <= BEFORE:
        return probe.refuse(_why_it_was_not_renewed(lock, of_its_own), **facts)
    if left <= BEFORE:
        return probe.refuse("wrong-unit", **facts)
    if left < WHOLE * SHORTEST:
        return probe.refuse("too-short", **facts)
    if of_its_own is None:
        return probe.refuse("no-return", function="renew")
    if of_another or of_nobody or not of_its_own:
        return probe.refuse("says-the-wrong-thing")
    return None


def _why_it_was_not_renewed(lock: Any, returned: object) -> str:
    """Return the code for a lock of one's own that renew() has left as it was."""
    if not returned and lock.client.ran_a_script():
        return "script-arguments"
    return "bytes-and-str" if not returned and lock.client.got_bytes else "expires"


def _clock_ahead(probe: Probe) -> Refusal | None:
    """A buyer whose clock is wrong renews for as long as any other."""
    lock = probe.lock()
    probe.plain.set(lock.key, "a", px=BEFORE)
    with clock_ahead(probe.module):
        lock.renew("a")
    left = int(probe.plain.pttl(lock.key))
    if left <= WHOLE * LONGEST:
        return None
    probe.says(f"A's clock is {SECONDS_AHEAD:g} s ahead; A renews its lock, PTTL says {left}")
    return probe.refuse("ends-by-own-clock", ahead=SECONDS_AHEAD, left=left, ttl=WHOLE)


def _fractions(probe: Probe) -> Refusal | None:
    """A ttl that is no whole number of seconds. Raises Undecided where the machine is too slow."""
    for seconds in FRACTIONS:
        ttl = round(seconds * 1000)
        lock = probe.lock(ttl=seconds)
        for _ in range(TRIES):
            began = time.monotonic()
            probe.plain.set(lock.key, "a", px=ttl // 2)
            lock.renew("a")
            left = int(probe.plain.pttl(lock.key))
            elapsed = (time.monotonic() - began) * 1000
            if elapsed < ttl / 2:  # else the lock may have ended before it was renewed
                break
        else:
            raise Undecided(f"a renewal took more than {ttl / 2:g} ms: this machine is too busy")
        if not SHORTEST * ttl - elapsed <= left <= LONGEST * ttl:
            probe.says(f"A has a lock of {ttl} ms and renews it: PTTL {left}")
            return probe.refuse("whole-seconds", left=left, ttl=ttl)
    return None


def _in_between(probe: Probe) -> Refusal | None:
    """The lock changes hands after each command of a renewal but the last."""

    def change(lock: Any, number: int) -> None:
        probe.plain.set(lock.key, "b", px=BEFORE)
        probe.says("A has the lock")
        probe.says(f"A stops after command {number} of its renewal; its lock ends, B takes it")

    for lock, _, facts in probe.in_between(
        lambda lock: lock.renew("a"),
        change,
        begins=lambda lock: probe.plain.set(lock.key, "a", px=BEFORE),
    ):
        if not _as_it_was(probe, lock.key):
            left = int(probe.plain.pttl(lock.key))
            probe.says(f"A goes on, and so renews the lock of B: PTTL {left}")
            return probe.refuse("not-atomic-renewal", left=left, **facts)
    return None


def _as_it_was(probe: Probe, key: str) -> bool:
    """Return whether B still has the lock, with the time that it had."""
    return probe.plain.get(key) == b"b" and BEFORE - SLOW < int(probe.plain.pttl(key)) <= BEFORE


def _at_work(probe: Probe) -> Refusal | None:
    """The first renewal's command is lost; the next one must come before the end of the lock."""
    lock = probe.lock(ttl=TTL)
    if not isinstance(lock.PERIOD, Real):
        return probe.refuse("raises", error=f"PERIOD is {lock.PERIOD!r}, and no number")
    began = time.monotonic()
    renewal_times: list[float] = []
    renew = lock.renew

    answers: list[object] = []

    def unreliable(token: str) -> bool:
        renewal_times.append(time.monotonic() - began)
        lock.client.loses_a_command = len(renewal_times) == 1
        if len(renewal_times) > 2 * MOST:
            return False
        answers.append(renew(token))
        return bool(answers[-1])

    lock.renew = unreliable
    lease = lock.acquire(0)
    time.sleep(1.6 * TTL)
    kept = probe.plain.get(lock.key) is not None
    lease.release()
    if len(renewal_times) > MOST:
        return probe.refuse("spins", times=len(renewal_times), period=lock.PERIOD)
    times = ", ".join(f"{at:.2f}" for at in renewal_times) or "never"
    probe.says(
        f"A works for {1.6 * TTL:.1f} s, ttl {TTL:g} s; renewals at {times}, the first is lost"
    )
    if kept:
        return None
    if len(renewal_times) == 1 and answers:
        probe.says(f"renew() says {answers[0]!r}, which ends all renewing; the lock has ended")
        return probe.refuse("error-is-lost", returned=repr(answers[0]))
    if not renewal_times:
        if lock.PERIOD <= 1:
            raise Undecided(f"this machine did not wake the renewal within {1.6 * TTL:.1f} s")
        return probe.refuse(
            "never-renewed", period=lock.PERIOD, first=float(lock.PERIOD) * TTL, ttl=TTL
        )
    period = renewal_times[0]
    late = max((at - period * (n + 1) for n, at in enumerate(renewal_times)), default=0.0)
    if late > LATE * TTL:
        raise Undecided(f"this machine woke the renewal {late:.1f} s late")
    probe.says("the lock has ended while A was working")
    return probe.refuse("no-slack", period=round(period, 2), ttl=TTL)
