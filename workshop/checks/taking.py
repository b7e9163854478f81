"""The checks of lessons 3 to 5: how a lock is acquired, expires and is released."""

import time
from functools import partial
from types import ModuleType
from typing import Any

from workshop.checks.probe import (
    IMMEDIATE_EXPIRY_SECONDS,
    LONG_TTL_SECONDS,
    RECOVERY_TIMEOUT_SECONDS,
    SECONDS_AHEAD,
    SHORT_TTL_SECONDS,
    KeyState,
    Probe,
    clock_ahead,
    run_checks,
)
from workshop.refusal import Refusal, Undecided

#: A ttl that a check sets on a held lock, to see whether a later command changes it.
HALF_TTL_MS = round(LONG_TTL_SECONDS * 500)
#: Time that a busy machine may lose between two commands.
LATENESS_MS = 5_000
#: Ttls that are not whole seconds. A ttl computed in whole seconds is wrong for one of the two.
FRACTIONAL_TTLS_SECONDS = (1.25, 1.75)
#: The shortest ttl that a lock of lesson 3 may have, which needs none. A purchase may take as long.
LONGEST_PURCHASE_MS = 900
#: Tolerated difference between PTTL and the elapsed time: Redis counts whole milliseconds.
PTTL_ROUNDING_MS = 2.0
#: The bounds of a correct ttl, relative to the requested ttl: Redis rounds.
MIN_TTL_RATIO, MAX_TTL_RATIO = 0.95, 1.05
#: If a ttl is below this part of the requested ttl, seconds and milliseconds were confused.
WRONG_UNIT_RATIO = 0.2
#: A check with a short lock that must not end meanwhile is repeated if it takes longer than this.
QUICK_SECONDS = SHORT_TTL_SECONDS / 1.2
#: Tries of a check that a busy machine may be too slow for.
MAX_TRIES = 10


def one_command(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the lock of lesson 3, or None."""
    checks = (
        _check_key_in_redis,
        _check_release,
        _check_second_holder,
        _check_release_after_refusal,
        _check_other_process,
        _check_rival_between_commands,
        _check_lost_command,
    )
    return run_checks(module, *checks)


def ending(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the lock of lesson 4, or None."""
    checks = (
        _check_ttl,
        _check_clock_ahead,
        _check_second_holder,
        _check_rival_between_commands,
        _check_end_of_living_holder,
        _check_waiters,
        _check_deaths,
    )
    return run_checks(module, *checks)


def release(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the release of lesson 5, or None."""
    return run_checks(
        module,
        _check_own_release,
        _check_late_release,
        _check_release_of_free_lock,
        _check_release_between_commands,
    )


def _check_key_in_redis(probe: Probe) -> Refusal | None:
    """Return a refusal unless the lock is the key `lock.key` in Redis, and lasts long enough."""
    lock = probe.make_lock()
    keys_before = set(probe.plain.keys())
    if refusal := probe.check_first_try(lock):
        return refusal
    probe.tell("A has the lock")
    if refusal := _check_early_end(probe, lock):
        return refusal
    if probe.plain.exists(lock.key):
        lock.unlock("a")
        return None
    other_keys = [key.decode() for key in set(probe.plain.keys()) - keys_before]
    if other_keys:
        probe.tell(f"Redis has no key {lock.key}, but {other_keys[0]}")
        return probe.refuse("another-key", key=lock.key, other=other_keys[0])
    probe.tell("Redis has no key: no other process can see it")
    return probe.refuse("still-in-one-process")


def _check_early_end(probe: Probe, lock: Any) -> Refusal | None:
    """Return a refusal if the ttl of the lock is shorter than a purchase.

    If a command was sent and the key is gone, it may have expired on a slow machine: then further
    locks are tried.
    """
    for _ in range(MAX_TRIES):
        pttl = int(probe.plain.pttl(lock.key))
        if 0 <= pttl < LONGEST_PURCHASE_MS:
            probe.tell(f"PTTL says {pttl}: the lock ends by itself, and A has only begun")
            return probe.refuse("ends-too-early", left=pttl)
        if pttl != -2 or not lock.client.sent or probe.plain.keys(f"*{lock.name}*"):
            return None
        lock = probe.make_lock()
        lock.try_lock("a")
    return None


def _check_second_holder(probe: Probe) -> Refusal | None:
    """Return a refusal if B, or C after it, gets the lock while A has it."""
    lock = probe.make_lock()
    if refusal := _check_refused_here(probe, lock, "a"):
        return refusal
    if probe.make_same_lock(lock).try_lock("b"):
        return _refuse_second_holder(probe)
    if probe.make_same_lock(lock).try_lock("c"):
        probe.tell("A has the lock; B asks and is refused; C asks, and has it too")
        return probe.refuse("loser-unlocks")
    lock.unlock("a")
    return None


def _refuse_second_holder(probe: Probe) -> Refusal:
    """Return the refusal for a second holder, according to what its try changes in the key."""
    lock = probe.make_lock()
    lock.try_lock("a")
    probe.plain.pexpire(lock.key, HALF_TTL_MS)  # changed by a command that overwrites the key
    before = probe.state(lock.key)
    probe.make_same_lock(lock).try_lock("b")
    after = probe.state(lock.key)
    keeps_ttl = 0 < after.pttl <= before.pttl
    if after.content == before.content and keeps_ttl:
        code = "always-true"
    elif after.kind == "string" and (after.text == "b" or not keeps_ttl):
        code = "overwrites"
    else:
        code = "adds-beside"
    probe.tell(f"A has the lock: {before.text}; B asks, and has it too: {after.text}")
    return probe.refuse(code, before=before.text, after=after.text)


def _check_refused_here(probe: Probe, lock: Any, token: str) -> Refusal | None:
    """Let a buyer of this process ask for a lock that is free in Redis.

    Return a refusal if the buyer does not get the lock.
    """
    returned = lock.try_lock(token)
    if returned or probe.plain.exists(lock.key):
        return None
    probe.tell(f"Redis has no key {lock.key}; {token.upper()} asks, and is refused")
    return probe.refuse("refused-here", returned=repr(returned))


def _check_release(probe: Probe) -> Refusal | None:
    """Return a refusal unless B gets the lock after A has released it."""
    lock = probe.make_lock()
    if refusal := _check_refused_here(probe, lock, "a"):
        return refusal
    lock_of_another = f"{lock.key}:of-another"
    probe.plain.set(lock_of_another, "1")
    lock.client.clear_records()
    returned = lock.unlock("a")
    is_free = not probe.plain.exists(lock.key)
    if not probe.plain.delete(lock_of_another):
        probe.tell("A gave its lock back; another one, of another product, is gone too")
        return probe.refuse("frees-other-locks")
    rival = probe.make_same_lock(lock)
    if rival.try_lock("b"):
        rival.unlock("b")
        return None
    probe.tell(f"A gave the lock back, unlock() says {returned!r}; B asks, and is refused")
    if is_free:
        return probe.refuse("refused-here", returned="False")
    return _explain_remaining_key(probe, lock) or probe.refuse(
        "never-released", returned=repr(returned)
    )


def _explain_remaining_key(probe: Probe, lock: Any) -> Refusal | None:
    """Return the refusal for an unlock() that left the key, or None if the cause is not known."""
    deleted = [key for key in lock.client.deleted if key != lock.key]
    if deleted:
        probe.tell(f"unlock() deletes the key {deleted[0]}; {lock.key} is still there")
        return probe.refuse("deletes-another-key", other=deleted[0], key=lock.key)
    if lock.client.got_bytes:
        return probe.refuse("never-equal")
    return None


def _check_release_after_refusal(probe: Probe) -> Refusal | None:
    """Return a refusal if a refused attempt of B keeps the lock taken after A has released it."""
    lock = probe.make_lock()
    lock.try_lock("a")
    before = probe.state(lock.key)
    probe.make_same_lock(lock).try_lock("b")
    during = probe.state(lock.key)
    lock.unlock("a")
    after = probe.state(lock.key)
    rival = probe.make_same_lock(lock)
    if rival.try_lock("c"):
        rival.unlock("c")
        return None
    probe.tell(f"A has the lock: {before.text}; B asks and is refused: {during.text}")
    probe.tell(f"A gives it back: {after.text}; C asks, and is refused")
    return probe.refuse("loser-counts", before=before.text, after=during.text, left=after.text)


def _check_other_process(probe: Probe) -> Refusal | None:
    """Return a refusal if this process cannot get a lock that another process held before."""
    lock = probe.make_lock()
    probe.run_in_child(partial(lock.try_lock, "a"))
    probe.make_same_lock(lock).try_lock("b")
    probe.plain.delete(lock.key)
    probe.tell("A has the lock in another process; B asks here and is refused; A's lock ends")
    return _check_refused_here(probe, probe.make_same_lock(lock), "c")


def _check_rival_between_commands(probe: Probe) -> Refusal | None:
    """Return a refusal if A and B both get the lock when B acts between two of A's commands."""
    answers: list[bool] = []

    def rival(lock: Any, number: int) -> None:
        answers.extend(bool(probe.make_same_lock(lock).try_lock("b")) for _ in range(2))
        words = " then ".join("yes" if answer else "no" for answer in answers)
        probe.tell(f"A stops after command {number}; B asks twice: {words}")

    for _, has_it, facts in probe.interleave(lambda lock: lock.try_lock("a"), rival):
        if has_it and any(answers):
            probe.tell("A goes on, and has it too")
            return probe.refuse("check-then-set" if answers[0] else "waiter-takes-it", **facts)
        answers.clear()
    return None


def _check_lost_command(probe: Probe) -> Refusal | None:
    """Return a refusal if try_lock() returns True although its command did not reach Redis.

    The call runs in a child process, because the exception may leave something in its process, such
    as a held threading.Lock, that would disturb the following checks.
    """
    lock = probe.make_lock()
    key_of_success = f"{lock.key}:open"

    def acquire_without_an_answer() -> None:
        lock.client.loses_next_command = True
        if lock.try_lock("a"):
            probe.plain.set(key_of_success, "1")

    probe.run_in_child(acquire_without_an_answer)
    if not probe.plain.delete(key_of_success):
        return None
    probe.tell("A asks, and its command does not reach Redis: try_lock() says True all the same")
    return probe.refuse("fail-open")


def _check_ttl(probe: Probe) -> Refusal | None:
    """Return a refusal unless the lock has the requested ttl, with one holder and no contender."""
    lock = probe.make_lock()
    if refusal := probe.check_first_try(lock):
        return refusal
    pttl = max(probe.wait_for_pttl(lock.key), -1)
    ttl = round(LONG_TTL_SECONDS * 1000)
    facts = {"left": max(pttl, 0), "ttl": ttl}
    probe.tell(f"A has the lock for {ttl} ms; PTTL says {pttl}")
    if pttl == -1 and probe.plain.exists(lock.key):
        return _refuse_missing_ttl(probe)
    if pttl < WRONG_UNIT_RATIO * ttl:
        return probe.refuse("wrong-unit", **facts)
    if pttl < MIN_TTL_RATIO * ttl:
        return probe.refuse("too-short", **facts)
    if pttl > MAX_TTL_RATIO * ttl:
        return probe.refuse("too-long", **facts)
    lock.unlock("a")
    for seconds in FRACTIONAL_TTLS_SECONDS:
        if refusal := _check_fractional_ttl(probe, seconds):
            return refusal
    return None


def _refuse_missing_ttl(probe: Probe) -> Refusal:
    """Return the refusal for a key without a ttl, according to how the lock ends, if it ends."""
    lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    lock.try_lock("a")
    waited = _measure_takeover_ms(probe, lock)
    if waited is None:
        return probe.refuse("no-end")
    lock_of_dead_process = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    probe.run_in_child(partial(lock_of_dead_process.try_lock, "a"))
    if _measure_takeover_ms(probe, lock_of_dead_process) is None:
        probe.tell(
            f"a lock of {SHORT_TTL_SECONDS * 1000:.0f} ms: while A's process lives, B had it in "
            f"{waited} ms"
        )
        probe.tell(
            f"A's process is gone: B asks for {RECOVERY_TIMEOUT_SECONDS:.1f} s, and is refused"
        )
        return probe.refuse("ends-with-its-holder", waited=waited)
    probe.tell(f"a lock of {SHORT_TTL_SECONDS * 1000:.0f} ms: B took it over after {waited} ms")
    return probe.refuse("ends-by-a-clock", waited=waited)


def _measure_takeover_ms(probe: Probe, lock: Any) -> int | None:
    """Return the milliseconds after which B gets a lock that A has just acquired.

    B asks repeatedly, from the end of the ttl on. None if B does not get the lock within
    RECOVERY_TIMEOUT_SECONDS.
    """
    acquired_at = time.monotonic()
    time.sleep(1.2 * SHORT_TTL_SECONDS)
    rival = probe.make_same_lock(lock)  # B is one buyer, so it keeps one object
    while time.monotonic() - acquired_at < RECOVERY_TIMEOUT_SECONDS:
        if rival.try_lock("b"):
            return round((time.monotonic() - acquired_at) * 1000)
        time.sleep(0.02)
    return None


def _check_fractional_ttl(probe: Probe, seconds: float) -> Refusal | None:
    """Return a refusal if a ttl with a fraction of a second is wrong.

    Raises Undecided if the machine is too slow.
    """
    ttl = round(seconds * 1000)
    for _ in range(MAX_TRIES):
        lock = probe.make_lock(ttl=seconds)
        began = time.monotonic()
        lock.try_lock("a")
        pttl = probe.wait_for_pttl(lock.key)
        elapsed = (time.monotonic() - began) * 1000
        if elapsed < QUICK_SECONDS * 1000:
            break
    else:
        raise Undecided(f"no lock was acquired within {QUICK_SECONDS:.2f} s: the machine is busy")
    if MIN_TTL_RATIO * ttl - elapsed <= pttl <= MAX_TTL_RATIO * ttl:
        return None
    probe.tell(f"A has the lock for {ttl} ms; PTTL says {pttl}")
    left = max(pttl, 0)  # PTTL is negative if the lock has ended, or never got its ttl
    # A ttl that was rounded up to whole seconds has since lost the elapsed time.
    missing_to_whole_second = (-left) % 1000
    was_rounded_up = missing_to_whole_second <= elapsed + PTTL_ROUNDING_MS
    is_too_long = left > ttl and not was_rounded_up
    return probe.refuse("too-long" if is_too_long else "whole-seconds", left=left, ttl=ttl)


def _check_clock_ahead(probe: Probe) -> Refusal | None:
    """Return a refusal if a buyer whose clock is ahead gets a longer ttl."""
    lock = probe.make_lock()
    with clock_ahead(probe.module):
        lock.try_lock("a")
    pttl = int(probe.plain.pttl(lock.key))
    ttl = round(LONG_TTL_SECONDS * 1000)
    if pttl <= MAX_TTL_RATIO * ttl:
        return None
    probe.tell(f"A's clock is {SECONDS_AHEAD:g} s ahead; A has the lock, PTTL says {pttl}")
    return probe.refuse("ends-by-own-clock", ahead=SECONDS_AHEAD, left=pttl, ttl=ttl)


def _check_waiters(probe: Probe) -> Refusal | None:
    """Return a refusal if a refused contender extends the holder's lock.

    Raises Undecided if the machine is too slow: the lock may have ended meanwhile.
    """
    for _ in range(MAX_TRIES):
        began = time.monotonic()
        lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
        lock.try_lock("a")
        time.sleep(SHORT_TTL_SECONDS / 3)
        before = int(probe.plain.pttl(lock.key))
        probe.make_same_lock(lock).try_lock("b")
        after = int(probe.plain.pttl(lock.key))
        if time.monotonic() - began < QUICK_SECONDS:
            break
    else:
        raise Undecided(
            f"A and B did not ask for a lock within {QUICK_SECONDS:.2f} s: the machine is busy"
        )
    probe.tell(f"A holds it, PTTL {before}; B asks and is refused, PTTL {after}")
    if after > before:
        return probe.refuse("waiters-renew", before=before, after=after)
    return None


def _check_deaths(probe: Probe) -> Refusal | None:
    """Return a refusal unless B gets the lock in time, after whichever command A was killed."""
    commands = probe.count_commands(partial(probe.make_lock(ttl=SHORT_TTL_SECONDS).try_lock, "a"))
    for number in range(1, commands + 1):
        lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
        if not probe.kill_after(number, partial(lock.try_lock, "a")):
            continue
        pttl = int(probe.plain.pttl(lock.key))
        probe.tell(f"A is killed after command {number} of {commands}; PTTL says {pttl}")
        if pttl > MAX_TTL_RATIO * SHORT_TTL_SECONDS * 1000:
            return probe.refuse("too-long", left=pttl, ttl=round(SHORT_TTL_SECONDS * 1000))
        deadline = time.monotonic() + RECOVERY_TIMEOUT_SECONDS
        rival = probe.make_same_lock(lock)
        while True:
            asked_at = time.monotonic()
            if rival.try_lock("b"):
                break
            if asked_at > deadline:
                probe.tell(
                    f"B has asked for {RECOVERY_TIMEOUT_SECONDS:.1f} s, and is still refused"
                )
                return probe.refuse("crash-between", command=number, left=pttl)
            time.sleep(0.02)
    return None


def _check_end_of_living_holder(probe: Probe) -> Refusal | None:
    """Return a refusal if the lock of a living holder lasts longer than its ttl."""
    lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    lock.try_lock("a")
    pttl = int(probe.plain.pttl(lock.key))
    if pttl > MAX_TTL_RATIO * SHORT_TTL_SECONDS * 1000:
        probe.tell(f"A takes a lock of {SHORT_TTL_SECONDS * 1000:.0f} ms; PTTL says {pttl}")
        return probe.refuse("too-long", left=pttl, ttl=round(SHORT_TTL_SECONDS * 1000))
    time.sleep(2 * SHORT_TTL_SECONDS)
    pttl = int(probe.plain.pttl(lock.key))
    if pttl == -2:
        return None
    probe.tell(
        f"A took a lock of {SHORT_TTL_SECONDS * 1000:.0f} ms {2 * SHORT_TTL_SECONDS:.1f} s ago; "
        f"PTTL says {pttl}"
    )
    return probe.refuse(
        "renewed-here", ttl=round(SHORT_TTL_SECONDS * 1000), waited=round(2000 * SHORT_TTL_SECONDS)
    )


def _check_own_release(probe: Probe) -> Refusal | None:
    """Return a refusal unless unlock() deletes the holder's own lock, and returns True."""
    lock = probe.make_lock()
    if refusal := probe.check_first_try(lock):
        return refusal
    lock.client.clear_records()
    returned = lock.unlock("a")
    probe.tell(f"A has the lock and gives it back: unlock() says {returned!r}")
    if not _is_gone(probe, lock.key):
        probe.tell("its key is still there")
        return _refuse_remaining_key(probe, lock, returned)
    if returned is None:
        return probe.refuse("no-return", function="unlock")
    return None if returned else probe.refuse("denies", returned=repr(returned))


def _is_gone(probe: Probe, key: str) -> bool:
    """Return whether a key is gone, or expires at once: PEXPIRE 1 deletes it like DEL."""
    if 0 <= int(probe.plain.pttl(key)) < 1000 * IMMEDIATE_EXPIRY_SECONDS:
        time.sleep(2 * IMMEDIATE_EXPIRY_SECONDS)
    return not probe.plain.exists(key)


def _refuse_remaining_key(probe: Probe, lock: Any, returned: object) -> Refusal:
    """Return the refusal for an unlock() that leaves the holder's own key."""
    if _frees_other_lock(probe):
        probe.tell("B has a lock, A gives it back: B's lock is gone")
        return probe.refuse("frees-others-only", returned=repr(returned))
    if not returned and lock.client.has_run_script():
        return probe.refuse("script-arguments", returned=repr(returned))
    refusal = _explain_remaining_key(probe, lock)
    if refusal and refusal.code == "deletes-another-key":
        return refusal
    code = "bytes-and-str" if refusal and not returned else "never-released"
    return probe.refuse(code, returned=repr(returned))


def _frees_other_lock(probe: Probe) -> bool:
    """Return whether A's release deletes a lock that B holds."""
    lock = probe.make_lock()
    lock.try_lock("b")
    probe.make_same_lock(lock).unlock("a")
    return _is_gone(probe, lock.key)


def _check_late_release(probe: Probe) -> Refusal | None:
    """Return a refusal if A, whose lock has ended, changes B's lock or claims to have freed it."""
    lock = probe.make_lock()
    lock.try_lock("a")
    content_of_a = probe.plain.dump(lock.key)
    _hand_lock_to_b(probe, lock)
    probe.tell("A had the lock; it ended, and B has it now")
    lock_of_b = probe.state(lock.key)
    returned = lock.unlock("a")
    _is_gone(probe, lock.key)
    after = probe.state(lock.key)
    if after.kind == "none":
        probe.tell("A, who is late, gives it back: B's lock is gone")
        is_same_value = lock_of_b.content and content_of_a == lock_of_b.content
        return probe.refuse("value-not-unique" if is_same_value else "deletes-blindly")
    if refusal := _check_third_holder(probe):
        return refusal
    if not _is_unchanged(lock_of_b, after):
        probe.tell(f"A, who is late, gives it back. B's lock was: {lock_of_b}; it is: {after}")
        return probe.refuse("changes-anothers-lock", before=str(lock_of_b), after=str(after))
    probe.tell(f"A, who is late, gives it back: unlock() says {returned!r}, B's lock is there")
    return probe.refuse("lies", returned=repr(returned)) if returned else None


def _check_third_holder(probe: Probe) -> Refusal | None:
    """Return a refusal if C gets the lock of B between two commands of A's late release."""
    answers_to_c: list[bool] = []

    def acquire_and_lose(lock: Any) -> None:
        lock.try_lock("a")
        _hand_lock_to_b(probe, lock)

    def let_c_ask(lock: Any, number: int) -> None:
        answers_to_c.append(bool(probe.make_same_lock(lock).try_lock("c")))

    for _, _, facts in probe.interleave(
        lambda lock: lock.unlock("a"), let_c_ask, prepare=acquire_and_lose
    ):
        if any(answers_to_c):
            probe.tell(f"A, who is late, stops after command {facts['command']} of its release")
            probe.tell("C asks, and has the lock while B is inside")
            return probe.refuse("away-for-a-moment", **facts)
    return None


def _is_unchanged(before: KeyState, after: KeyState) -> bool:
    """Return whether a lock has the same content and expires at the same time."""
    return after.content == before.content and before.pttl - LATENESS_MS < after.pttl <= before.pttl


def _check_release_of_free_lock(probe: Probe) -> Refusal | None:
    """Return a refusal if A, releasing a free lock, changes it or claims to have freed it."""
    lock = probe.make_lock()
    lock.try_lock("a")
    probe.plain.delete(lock.key)
    returned = lock.unlock("a")
    after = probe.state(lock.key)
    probe.tell(f"A had the lock; it ended, and nobody has it. unlock() says {returned!r}: {after}")
    if after.kind != "none":
        return probe.refuse("changes-anothers-lock", before="no key", after=str(after))
    return probe.refuse("nothing-to-free", returned=repr(returned)) if returned else None


def _check_release_between_commands(probe: Probe) -> Refusal | None:
    """Return a refusal if A frees a lock that B acquired between two of A's commands."""
    locks_of_b: dict[str, KeyState] = {}

    def change(lock: Any, number: int) -> None:
        _hand_lock_to_b(probe, lock)
        locks_of_b[lock.key] = probe.state(lock.key)
        probe.tell("A has the lock")
        probe.tell(f"A stops after command {number} of its release; its lock ends, B takes it")

    for lock, returned, facts in probe.interleave(
        lambda lock: lock.unlock("a"), change, prepare=lambda lock: lock.try_lock("a")
    ):
        if lock.key not in locks_of_b:  # this release sent fewer commands than the one before
            continue
        after = probe.state(lock.key)
        if after.kind == "none":
            probe.tell("A goes on, and so deletes the lock of B")
            return probe.refuse("not-atomic-release", **facts)
        if not _is_unchanged(locks_of_b[lock.key], after):
            probe.tell(f"A goes on. B's lock was: {locks_of_b[lock.key]}; it is: {after}")
            return probe.refuse("not-atomic-release", **facts)
        if returned:
            probe.tell(f"A goes on: unlock() says {returned!r}, B's lock is there")
            return probe.refuse("lies-in-between", returned=repr(returned), **facts)
    return None


def _hand_lock_to_b(probe: Probe, lock: Any) -> None:
    """End A's lock, and let B acquire it."""
    probe.plain.delete(lock.key)
    probe.make_same_lock(lock).try_lock("b")
