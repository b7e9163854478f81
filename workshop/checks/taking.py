"""Lessons 3 to 5: how a lock is taken, how it ends where its holder dies, and how it is freed."""

import time
from functools import partial
from types import ModuleType
from typing import Any

from workshop.checks.probe import (
    AT_ONCE,
    LONG,
    RECOVERED_WITHIN,
    SECONDS_AHEAD,
    TTL,
    KeyState,
    Probe,
    clock_ahead,
    probed,
)
from workshop.refusal import Refusal, Undecided

#: Milliseconds that a lock gets as its end in between, so that what overwrites it is seen.
HALF = round(LONG * 500)
#: Milliseconds by which a machine may be late.
SLOW = 5_000
#: Seconds that are no whole number. A wall clock in whole seconds is wrong for one of the two.
FRACTIONS = (1.25, 1.75)
#: Milliseconds that a purchase may take in lesson 3, where a lock need not end by itself.
AT_WORK_MS = 900
#: Milliseconds by which PTTL may differ from the time that has passed: Redis counts whole ones.
PTTL_ROUNDING_MS = 2.0
#: Parts of the ttl within which a lock lives as long as it was asked to: Redis rounds.
SHORTEST, LONGEST = 0.95, 1.05
#: Part of the ttl below which its unit is wrong.
ANOTHER_UNIT = 0.2
#: Seconds that a holder and a contender have before the lock may end, and how often a busy machine
#: tries to be so quick.
QUICK, TRIES = TTL / 1.2, 10


def one_command(module: ModuleType) -> Refusal | None:
    """Lesson 3: one command decides who has the lock, for every process that asks."""
    checks = (
        _seen_by_others,
        _given_back,
        _let_in_beside,
        _given_back_after_a_refusal,
        _refused_by_another_process,
        _in_between,
        _closed_without_an_answer,
    )
    return probed(module, *checks)


def ending(module: ModuleType) -> Refusal | None:
    """Lesson 4: the lock of a dead holder ends by itself, wherever its holder died."""
    checks = (
        _lives,
        _clock_ahead,
        _let_in_beside,
        _in_between,
        _ends_though_its_holder_lives,
        _waiters,
        _deaths,
    )
    return probed(module, *checks)


def release(module: ModuleType) -> Refusal | None:
    """Lesson 5: a late holder frees nothing but its own lock, and says whether it did."""
    return probed(module, _own, _late, _late_and_nobody_has_it, _freed_in_between)


def _seen_by_others(probe: Probe) -> Refusal | None:
    """The lock is a key in Redis, of the name that every process knows."""
    lock = probe.lock()
    before = set(probe.plain.keys())
    if refusal := probe.first_try(lock):
        return refusal
    probe.says("A has the lock")
    if refusal := _ends_too_early(probe, lock):
        return refusal
    if probe.plain.exists(lock.key):
        lock.unlock("a")
        return None
    other_keys = [key.decode() for key in set(probe.plain.keys()) - before]
    if other_keys:
        probe.says(f"Redis has no key {lock.key}, but {other_keys[0]}")
        return probe.refuse("another-key", key=lock.key, other=other_keys[0])
    probe.says("Redis has no key: no other process can see it")
    return probe.refuse("still-in-one-process")


def _ends_too_early(probe: Probe, lock: Any) -> Refusal | None:
    """A lock that ends by itself lives as long as its holder works.

    Where the key is gone already, other locks are taken: a slow machine may have missed its end.
    """
    for _ in range(TRIES):
        left = int(probe.plain.pttl(lock.key))
        if 0 <= left < AT_WORK_MS:
            probe.says(f"PTTL says {left}: the lock ends by itself, and A has only begun")
            return probe.refuse("ends-too-early", left=left)
        if left != -2 or not lock.client.sent or probe.plain.keys(f"*{lock.name}*"):
            return None
        lock = probe.lock()
        lock.try_lock("a")
    return None


def _let_in_beside(probe: Probe) -> Refusal | None:
    """A has the lock: B is refused, and C after B."""
    lock = probe.lock()
    if refusal := _refused_here(probe, lock, "a"):
        return refusal
    if probe.again(lock).try_lock("b"):
        return _both_have_it(probe)
    if probe.again(lock).try_lock("c"):
        probe.says("A has the lock; B asks and is refused; C asks, and has it too")
        return probe.refuse("loser-unlocks")
    lock.unlock("a")
    return None


def _both_have_it(probe: Probe) -> Refusal:
    """Return the refusal for a second holder, by what its try does to the key."""
    lock = probe.lock()
    lock.try_lock("a")
    probe.plain.pexpire(lock.key, HALF)  # a command that overwrites the key takes this away
    before = probe.state(lock.key)
    probe.again(lock).try_lock("b")
    after = probe.state(lock.key)
    keeps_its_end = 0 < after.pttl <= before.pttl
    if after.content == before.content and keeps_its_end:
        code = "always-true"
    elif after.kind == "string" and (after.text == "b" or not keeps_its_end):
        code = "overwrites"
    else:
        code = "adds-beside"
    probe.says(f"A has the lock: {before.text}; B asks, and has it too: {after.text}")
    return probe.refuse(code, before=before.text, after=after.text)


def _refused_here(probe: Probe, lock: Any, token: str) -> Refusal | None:
    """Ask for a lock that is free in Redis. Return a refusal if this process does not get it."""
    returned = lock.try_lock(token)
    if returned or probe.plain.exists(lock.key):
        return None
    probe.says(f"Redis has no key {lock.key}; {token.upper()} asks, and is refused")
    return probe.refuse("refused-here", returned=repr(returned))


def _given_back(probe: Probe) -> Refusal | None:
    """The next one has the lock that was given back."""
    lock = probe.lock()
    if refusal := _refused_here(probe, lock, "a"):
        return refusal
    lock_of_another = f"{lock.key}:of-another"
    probe.plain.set(lock_of_another, "1")
    lock.client.forget_sent()
    returned = lock.unlock("a")
    is_free = not probe.plain.exists(lock.key)
    if not probe.plain.delete(lock_of_another):
        probe.says("A gave its lock back; another one, of another product, is gone too")
        return probe.refuse("frees-other-locks")
    rival = probe.again(lock)
    if rival.try_lock("b"):
        rival.unlock("b")
        return None
    probe.says(f"A gave the lock back, unlock() says {returned!r}; B asks, and is refused")
    if is_free:
        return probe.refuse("refused-here", returned="False")
    return _key_left_there(probe, lock) or probe.refuse("never-released", returned=repr(returned))


def _key_left_there(probe: Probe, lock: Any) -> Refusal | None:
    """Return why unlock() did not delete the key, where what it has sent tells."""
    deleted = [key for key in lock.client.deleted if key != lock.key]
    if deleted:
        probe.says(f"unlock() deletes the key {deleted[0]}; {lock.key} is still there")
        return probe.refuse("deletes-another-key", other=deleted[0], key=lock.key)
    if lock.client.got_bytes:
        return probe.refuse("never-equal")
    return None


def _given_back_after_a_refusal(probe: Probe) -> Refusal | None:
    """B was refused before A gave the lock back: nothing of its try is left."""
    lock = probe.lock()
    lock.try_lock("a")
    before = probe.state(lock.key)
    probe.again(lock).try_lock("b")
    during = probe.state(lock.key)
    lock.unlock("a")
    after = probe.state(lock.key)
    rival = probe.again(lock)
    if rival.try_lock("c"):
        rival.unlock("c")
        return None
    probe.says(f"A has the lock: {before.text}; B asks and is refused: {during.text}")
    probe.says(f"A gives it back: {after.text}; C asks, and is refused")
    return probe.refuse("loser-counts", before=before.text, after=during.text, left=after.text)


def _refused_by_another_process(probe: Probe) -> Refusal | None:
    """Another process has the lock, B is refused here; once it is free, B's process gets it."""
    lock = probe.lock()
    probe.in_another_process(partial(lock.try_lock, "a"))
    probe.again(lock).try_lock("b")
    probe.plain.delete(lock.key)
    probe.says("A has the lock in another process; B asks here and is refused; A's lock ends")
    return _refused_here(probe, probe.again(lock), "c")


def _in_between(probe: Probe) -> Refusal | None:
    """Another buyer comes in after each command of taking the lock but the last."""
    answers: list[bool] = []

    def rival(lock: Any, number: int) -> None:
        answers.extend(bool(probe.again(lock).try_lock("b")) for _ in range(2))
        words = " then ".join("yes" if answer else "no" for answer in answers)
        probe.says(f"A stops after command {number}; B asks twice: {words}")

    for _, has_it, facts in probe.in_between(lambda lock: lock.try_lock("a"), rival):
        if has_it and any(answers):
            probe.says("A goes on, and has it too")
            return probe.refuse("check-then-set" if answers[0] else "waiter-takes-it", **facts)
        answers.clear()
    return None


def _closed_without_an_answer(probe: Probe) -> Refusal | None:
    """A's command does not reach Redis: A does not have the lock.

    In a child process: what an exception leaves behind there, such as a lock of one process, does
    not disturb the checks that follow.
    """
    lock = probe.lock()
    witness = f"{lock.key}:open"

    def take_without_an_answer() -> None:
        lock.client.loses_a_command = True
        if lock.try_lock("a"):
            probe.plain.set(witness, "1")

    probe.in_another_process(take_without_an_answer)
    if not probe.plain.delete(witness):
        return None
    probe.says("A asks, and its command does not reach Redis: try_lock() says True all the same")
    return probe.refuse("fail-open")


def _lives(probe: Probe) -> Refusal | None:
    """One holder and no contender: its lock lives as long as it was asked to."""
    lock = probe.lock()
    if refusal := probe.first_try(lock):
        return refusal
    left = max(probe.pttl_once_it_is_set(lock.key), -1)
    ttl = round(LONG * 1000)
    facts = {"left": max(left, 0), "ttl": ttl}
    probe.says(f"A has the lock for {ttl} ms; PTTL says {left}")
    if left == -1 and probe.plain.exists(lock.key):
        return _without_an_end(probe)
    if left < ANOTHER_UNIT * ttl:
        return probe.refuse("wrong-unit", **facts)
    if left < SHORTEST * ttl:
        return probe.refuse("too-short", **facts)
    if left > LONGEST * ttl:
        return probe.refuse("too-long", **facts)
    lock.unlock("a")
    return next(filter(None, (_lives_for(probe, seconds) for seconds in FRACTIONS)), None)


def _without_an_end(probe: Probe) -> Refusal:
    """Return the refusal of a key without a ttl: who ends it, if anybody does?"""
    lock = probe.lock(ttl=TTL)
    lock.try_lock("a")
    waited = _taken_over_after(probe, lock)
    if waited is None:
        return probe.refuse("no-end")
    dead = probe.lock(ttl=TTL)
    probe.in_another_process(partial(dead.try_lock, "a"))
    if _taken_over_after(probe, dead) is None:
        probe.says(
            f"a lock of {TTL * 1000:.0f} ms: while A's process lives, B had it in {waited} ms"
        )
        probe.says(f"A's process is gone: B asks for {RECOVERED_WITHIN:.1f} s, and is refused")
        return probe.refuse("ends-with-its-holder", waited=waited)
    probe.says(f"a lock of {TTL * 1000:.0f} ms: B took it over after {waited} ms")
    return probe.refuse("ends-by-a-clock", waited=waited)


def _taken_over_after(probe: Probe, lock: Any) -> int | None:
    """Let B ask for a lock that has just been taken, from the end of its ttl on. Return after how
    many milliseconds B has it; None if it is refused for longer than a death may last."""
    taken_at = time.monotonic()
    time.sleep(1.2 * TTL)
    rival = probe.again(lock)  # one buyer, who asks again and again
    while time.monotonic() - taken_at < RECOVERED_WITHIN:
        if rival.try_lock("b"):
            return round((time.monotonic() - taken_at) * 1000)
        time.sleep(0.02)
    return None


def _lives_for(probe: Probe, seconds: float) -> Refusal | None:
    """A ttl that is no whole number of seconds. Raises Undecided where the machine is too slow."""
    ttl = round(seconds * 1000)
    for _ in range(TRIES):
        lock = probe.lock(ttl=seconds)
        began = time.monotonic()
        lock.try_lock("a")
        left = max(probe.pttl_once_it_is_set(lock.key), 0)
        elapsed = (time.monotonic() - began) * 1000
        if elapsed < QUICK * 1000:
            break
    else:
        raise Undecided(f"nothing was done within {QUICK:.2f} s: this machine is too busy")
    if SHORTEST * ttl - elapsed <= left <= LONGEST * ttl:
        return None
    probe.says(f"A has the lock for {ttl} ms; PTTL says {left}")
    rounded_up = -left % 1000 <= elapsed + PTTL_ROUNDING_MS
    too_long = left > ttl and not rounded_up
    return probe.refuse("too-long" if too_long else "whole-seconds", left=left, ttl=ttl)


def _clock_ahead(probe: Probe) -> Refusal | None:
    """A buyer whose clock is wrong gets a lock that lives as long as any other."""
    lock = probe.lock()
    with clock_ahead(probe.module):
        lock.try_lock("a")
    left = int(probe.plain.pttl(lock.key))
    ttl = round(LONG * 1000)
    if left <= LONGEST * ttl:
        return None
    probe.says(f"A's clock is {SECONDS_AHEAD:g} s ahead; A has the lock, PTTL says {left}")
    return probe.refuse("ends-by-own-clock", ahead=SECONDS_AHEAD, left=left, ttl=ttl)


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
    """Kill a holder after each of its commands: another buyer has the lock in time."""
    commands = probe.commands_of(partial(probe.lock(ttl=TTL).try_lock, "a"))
    for number in range(1, commands + 1):
        lock = probe.lock(ttl=TTL)
        if not probe.dies_after(number, partial(lock.try_lock, "a")):
            continue
        left = int(probe.plain.pttl(lock.key))
        probe.says(f"A is killed after command {number} of {commands}; PTTL says {left}")
        if left > LONGEST * TTL * 1000:
            return probe.refuse("too-long", left=left, ttl=round(TTL * 1000))
        deadline = time.monotonic() + RECOVERED_WITHIN
        rival = probe.again(lock)
        while True:
            asked_at = time.monotonic()
            if rival.try_lock("b"):
                break
            if asked_at > deadline:
                probe.says(f"B has asked for {RECOVERED_WITHIN:.1f} s, and is still refused")
                return probe.refuse("crash-between", command=number, left=left)
            time.sleep(0.02)
    return None


def _ends_though_its_holder_lives(probe: Probe) -> Refusal | None:
    """A holder who is still at work gets no more than the ttl: nothing renews the lock."""
    lock = probe.lock(ttl=TTL)
    lock.try_lock("a")
    left = int(probe.plain.pttl(lock.key))
    if left > LONGEST * TTL * 1000:
        probe.says(f"A takes a lock of {TTL * 1000:.0f} ms; PTTL says {left}")
        return probe.refuse("too-long", left=left, ttl=round(TTL * 1000))
    time.sleep(2 * TTL)
    left = int(probe.plain.pttl(lock.key))
    if left == -2:
        return None
    probe.says(f"A took a lock of {TTL * 1000:.0f} ms {2 * TTL:.1f} s ago; PTTL says {left}")
    return probe.refuse("renewed-here", ttl=round(TTL * 1000), waited=round(2000 * TTL))


def _own(probe: Probe) -> Refusal | None:
    """A holder gives its own lock back."""
    lock = probe.lock()
    if refusal := probe.first_try(lock):
        return refusal
    lock.client.forget_sent()
    returned = lock.unlock("a")
    probe.says(f"A has the lock and gives it back: unlock() says {returned!r}")
    if not _is_gone(probe, lock.key):
        probe.says("its key is still there")
        return _own_left_there(probe, lock, returned)
    if returned is None:
        return probe.refuse("no-return", function="unlock")
    return None if returned else probe.refuse("denies", returned=repr(returned))


def _is_gone(probe: Probe, key: str) -> bool:
    """Return whether a key is gone, or ends at once: PEXPIRE 1 deletes as DEL does."""
    if 0 <= int(probe.plain.pttl(key)) < 1000 * AT_ONCE:
        time.sleep(2 * AT_ONCE)
    return not probe.plain.exists(key)


def _own_left_there(probe: Probe, lock: Any, returned: object) -> Refusal:
    """Return why unlock() has left the holder's own key."""
    if _frees_the_lock_of_another(probe):
        probe.says("B has a lock, A gives it back: B's lock is gone")
        return probe.refuse("frees-others-only", returned=repr(returned))
    if not returned and lock.client.ran_a_script():
        return probe.refuse("script-arguments", returned=repr(returned))
    refusal = _key_left_there(probe, lock)
    if refusal and refusal.code == "deletes-another-key":
        return refusal
    code = "bytes-and-str" if refusal and not returned else "never-released"
    return probe.refuse(code, returned=repr(returned))


def _frees_the_lock_of_another(probe: Probe) -> bool:
    """Return whether A's release deletes a lock that B has."""
    lock = probe.lock()
    lock.try_lock("b")
    probe.again(lock).unlock("a")
    return _is_gone(probe, lock.key)


def _late(probe: Probe) -> Refusal | None:
    """A's lock has ended and B has it. A gives back what it believes to be its own."""
    lock = probe.lock()
    lock.try_lock("a")
    of_a = probe.plain.dump(lock.key)
    _changes_hands(probe, lock)
    probe.says("A had the lock; it ended, and B has it now")
    of_b = probe.state(lock.key)
    returned = lock.unlock("a")
    _is_gone(probe, lock.key)
    after = probe.state(lock.key)
    if after.kind == "none":
        probe.says("A, who is late, gives it back: B's lock is gone")
        same = of_b.content and of_a == of_b.content
        return probe.refuse("value-not-unique" if same else "deletes-blindly")
    if refusal := _let_in_meanwhile(probe):
        return refusal
    if not _is_unchanged(of_b, after):
        probe.says(f"A, who is late, gives it back. B's lock was: {of_b}; it is: {after}")
        return probe.refuse("changes-anothers-lock", before=str(of_b), after=str(after))
    probe.says(f"A, who is late, gives it back: unlock() says {returned!r}, B's lock is there")
    return probe.refuse("lies", returned=repr(returned)) if returned else None


def _let_in_meanwhile(probe: Probe) -> Refusal | None:
    """C asks after each command of A's late release but the last: B has the lock all the time."""
    let_in: list[bool] = []

    def take_and_lose(lock: Any) -> None:
        lock.try_lock("a")
        _changes_hands(probe, lock)

    def third(lock: Any, number: int) -> None:
        let_in.append(bool(probe.again(lock).try_lock("c")))

    for _, _, facts in probe.in_between(lambda lock: lock.unlock("a"), third, begins=take_and_lose):
        if any(let_in):
            probe.says(f"A, who is late, stops after command {facts['command']} of its release")
            probe.says("C asks, and has the lock while B is inside")
            return probe.refuse("away-for-a-moment", **facts)
    return None


def _is_unchanged(before: KeyState, after: KeyState) -> bool:
    """Return whether a lock is the same, and ends when it was to end."""
    return after.content == before.content and before.pttl - SLOW < after.pttl <= before.pttl


def _late_and_nobody_has_it(probe: Probe) -> Refusal | None:
    """A's lock has ended, and is free: there is nothing to give back."""
    lock = probe.lock()
    lock.try_lock("a")
    probe.plain.delete(lock.key)
    returned = lock.unlock("a")
    after = probe.state(lock.key)
    probe.says(f"A had the lock; it ended, and nobody has it. unlock() says {returned!r}: {after}")
    if after.kind != "none":
        return probe.refuse("changes-anothers-lock", before="no key", after=str(after))
    return probe.refuse("nothing-to-free", returned=repr(returned)) if returned else None


def _freed_in_between(probe: Probe) -> Refusal | None:
    """The lock changes hands after each command of the release but the last."""
    of_b: dict[str, KeyState] = {}

    def change(lock: Any, number: int) -> None:
        _changes_hands(probe, lock)
        of_b[lock.key] = probe.state(lock.key)
        probe.says("A has the lock")
        probe.says(f"A stops after command {number} of its release; its lock ends, B takes it")

    for lock, returned, facts in probe.in_between(
        lambda lock: lock.unlock("a"), change, begins=lambda lock: lock.try_lock("a")
    ):
        if lock.key not in of_b:  # this release sent fewer commands than the one before
            continue
        after = probe.state(lock.key)
        if after.kind == "none":
            probe.says("A goes on, and so deletes the lock of B")
            return probe.refuse("not-atomic-release", **facts)
        if not _is_unchanged(of_b[lock.key], after):
            probe.says(f"A goes on. B's lock was: {of_b[lock.key]}; it is: {after}")
            return probe.refuse("not-atomic-release", **facts)
        if returned:
            probe.says(f"A goes on: unlock() says {returned!r}, B's lock is there")
            return probe.refuse("lies-in-between", returned=repr(returned), **facts)
    return None


def _changes_hands(probe: Probe, lock: Any) -> None:
    """A's lock ends, and B takes it."""
    probe.plain.delete(lock.key)
    probe.again(lock).try_lock("b")
