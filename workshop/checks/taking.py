"""The checks of lessons 3 to 5: how a lock is acquired, expires and is released.

lessons.toml names the checks of this module: one_command, ending and release.
"""

import time
from functools import partial
from types import ModuleType
from typing import Any

from workshop.checks.probe import (
    IMMEDIATE_EXPIRY_SECONDS,
    LATENESS_MS,
    LONG_TTL_MS,
    MAX_TRIES,
    MAX_TTL_RATIO,
    MIN_TTL_RATIO,
    RECOVERY_TIMEOUT_SECONDS,
    SHORT_TTL_SECONDS,
    KeyState,
    Probe,
    run_checks,
)
from workshop.refusal import Refusal, Undecided

SHORT_TTL_MS = round(SHORT_TTL_SECONDS * 1000)
#: A ttl that a check sets on a held lock, to see whether a later command changes it.
HALF_TTL_MS = LONG_TTL_MS // 2
#: Ttls that are not whole seconds. A ttl computed in whole seconds is wrong for one of the two.
FRACTIONAL_TTLS_SECONDS = (1.25, 1.75)
#: How long a purchase may take. A lock of lesson 3 needs no ttl, but must not have a shorter one.
LONGEST_PURCHASE_MS = 900
#: Tolerated difference between PTTL and the elapsed time: Redis counts whole milliseconds.
PTTL_ROUNDING_MS = 2.0
#: If a ttl is below this part of the requested ttl, seconds and milliseconds were confused.
WRONG_UNIT_RATIO = 0.2
#: A try that takes longer is repeated: a lock with SHORT_TTL_SECONDS may have ended meanwhile.
QUICK_SECONDS = SHORT_TTL_SECONDS / 1.2
#: Time after which a lock with SHORT_TTL_SECONDS has certainly ended.
EXPIRY_SECONDS = 1.2 * SHORT_TTL_SECONDS
#: Time between two tries of a buyer who asks again and again.
RETRY_PAUSE_SECONDS = 0.02


def one_command(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the lock of lesson 3, or None.

    lessons.toml refers to this function.
    """
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
    """Return a refusal for the first mistake in the lock of lesson 4, or None.

    lessons.toml refers to this function.
    """
    checks = (
        _check_ttl,
        _check_clock_ahead,
        _check_second_holder,
        _check_rival_between_commands,
        _check_end_of_living_holder,
        _check_ttl_after_refusal,
        _check_killed_holder,
    )
    return run_checks(module, *checks)


def release(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the release of lesson 5, or None.

    lessons.toml refers to this function.
    """
    return run_checks(
        module,
        _check_own_release,
        _check_late_release,
        _check_release_of_free_lock,
        _check_release_between_commands,
    )


def _check_key_in_redis(probe: Probe) -> Refusal | None:
    """Return a refusal unless try_lock() sets the key `lock.key`, for longer than a purchase."""
    lock = probe.make_lock()
    keys_before = set(probe.plain_client.keys())
    if refusal := probe.check_first_try(lock):
        return refusal
    probe.tell("A has the lock")
    if refusal := _check_early_end(probe, lock):
        return refusal
    if probe.plain_client.exists(lock.key):
        lock.unlock("a")
        return None
    other_keys = [key.decode() for key in set(probe.plain_client.keys()) - keys_before]
    if other_keys:
        probe.tell(f"Redis has no key {lock.key}, but {other_keys[0]}")
        return probe.refuse("another-key", key=lock.key, other=other_keys[0])
    probe.tell("Redis has no key: no other process can see it")
    return probe.refuse("still-in-one-process")


def _check_early_end(probe: Probe, lock: Any) -> Refusal | None:
    """Return a refusal if the ttl of the lock is shorter than a purchase.

    On a slow machine the key may have expired already. So if A sent commands, but there is no key,
    try again with a new lock.
    """
    for _ in range(MAX_TRIES):
        pttl = int(probe.plain_client.pttl(lock.key))
        if 0 <= pttl < LONGEST_PURCHASE_MS:
            probe.tell(f"PTTL says {pttl}: the lock ends by itself, and A has only begun")
            return probe.refuse("ends-too-early", left=pttl)
        has_key = pttl != -2
        # The participant may use another key that contains the name of the lock.
        keys_with_name = probe.plain_client.keys(f"*{lock.name}*")
        if has_key or keys_with_name or not lock.client.sent_commands:
            return None
        lock = probe.make_lock()
        lock.try_lock("a")
    return None


def _check_second_holder(probe: Probe) -> Refusal | None:
    """Return a refusal unless A gets a free lock, and both B and C are then refused."""
    lock = probe.make_lock()
    if refusal := _check_free_lock_is_granted(probe, lock, "a"):
        return refusal
    if probe.make_same_lock(lock).try_lock("b"):
        return _refuse_second_holder(probe)
    if probe.make_same_lock(lock).try_lock("c"):
        probe.tell("A has the lock; B asks and is refused; C asks, and has it too")
        return probe.refuse("loser-unlocks")
    lock.unlock("a")
    return None


def _refuse_second_holder(probe: Probe) -> Refusal:
    """Return the refusal for a lock that B gets while A holds it.

    The code of the refusal depends on how B's try changes the key.
    """
    lock = probe.make_lock()
    lock.try_lock("a")
    # A command that overwrites the key also changes or removes this ttl.
    probe.plain_client.pexpire(lock.key, HALF_TTL_MS)
    before = probe.read_state(lock.key)
    token_of_b = "b"
    probe.make_same_lock(lock).try_lock(token_of_b)
    after = probe.read_state(lock.key)
    keeps_ttl = 0 < after.pttl <= before.pttl
    if after.content == before.content and keeps_ttl:
        code = "always-true"
    elif after.redis_type == "string" and (after.text == token_of_b or not keeps_ttl):
        code = "overwrites"
    else:
        code = "adds-beside"
    probe.tell(f"A has the lock: {before.text}; B asks, and has it too: {after.text}")
    return probe.refuse(code, before=before.text, after=after.text)


def _check_free_lock_is_granted(probe: Probe, lock: Any, token: str) -> Refusal | None:
    """Return a refusal if try_lock() returns False for a free lock and sets no key.

    If it returns False but sets the key, Probe.check_first_try() refuses the file instead.

    token  the token of the buyer who asks; its capital is the buyer's name in the story
    """
    returned = lock.try_lock(token)
    if returned or probe.plain_client.exists(lock.key):
        return None
    probe.tell(f"Redis has no key {lock.key}; {token.upper()} asks, and is refused")
    return probe.refuse("refused-here", returned=repr(returned))


def _check_release(probe: Probe) -> Refusal | None:
    """Return a refusal unless A gets a free lock, and B gets it after A's release.

    The release must not delete the key of another lock.
    """
    lock = probe.make_lock()
    if refusal := _check_free_lock_is_granted(probe, lock, "a"):
        return refusal
    key_of_other_lock = f"{lock.key}:of-another"
    probe.plain_client.set(key_of_other_lock, "1")
    lock.client.clear_records()
    returned = lock.unlock("a")
    is_free = not probe.plain_client.exists(lock.key)
    if not probe.plain_client.delete(key_of_other_lock):  # unlock() has deleted it
        probe.tell("A gave its lock back; the lock of another product is gone too")
        return probe.refuse("frees-other-locks")
    lock_of_b = probe.make_same_lock(lock)
    if lock_of_b.try_lock("b"):
        lock_of_b.unlock("b")
        return None
    probe.tell(f"A gave the lock back, unlock() says {returned!r}; B asks, and is refused")
    if is_free:  # the lock is free in Redis, so something in this process refuses B
        return probe.refuse("refused-here", returned="False")
    return _explain_remaining_key(probe, lock) or probe.refuse(
        "never-released", returned=repr(returned)
    )


def _explain_remaining_key(probe: Probe, lock: Any) -> Refusal | None:
    """Return the refusal for an unlock() that did not delete its key; None if the cause is unknown.

    One cause is the comparison of a str with the bytes that the client returns.
    """
    other_deleted_keys = [key for key in lock.client.deleted_keys if key != lock.key]
    if other_deleted_keys:
        other_key = other_deleted_keys[0]
        probe.tell(f"unlock() deletes the key {other_key}; {lock.key} is still there")
        return probe.refuse("deletes-another-key", other=other_key, key=lock.key)
    if lock.client.has_received_bytes:
        return probe.refuse("never-equal")
    return None


def _check_release_after_refusal(probe: Probe) -> Refusal | None:
    """Return a refusal if A's release fails to free the lock because B has asked for it before."""
    lock = probe.make_lock()
    lock.try_lock("a")
    held_by_a = probe.read_state(lock.key).text
    probe.make_same_lock(lock).try_lock("b")
    after_try_of_b = probe.read_state(lock.key).text
    lock.unlock("a")
    after_release = probe.read_state(lock.key).text
    lock_of_c = probe.make_same_lock(lock)
    if lock_of_c.try_lock("c"):
        lock_of_c.unlock("c")
        return None
    probe.tell(f"A has the lock: {held_by_a}; B asks and is refused: {after_try_of_b}")
    probe.tell(f"A gives it back: {after_release}; C asks, and is refused")
    return probe.refuse("loser-counts", before=held_by_a, after=after_try_of_b, left=after_release)


def _check_other_process(probe: Probe) -> Refusal | None:
    """Return a refusal if this process still refuses a lock that another process has lost."""
    lock = probe.make_lock()
    probe.run_in_child(partial(lock.try_lock, "a"))
    probe.make_same_lock(lock).try_lock("b")
    probe.plain_client.delete(lock.key)
    probe.tell("A has the lock in another process; B asks here and is refused; A's lock ends")
    return _check_free_lock_is_granted(probe, probe.make_same_lock(lock), "c")


def _check_rival_between_commands(probe: Probe) -> Refusal | None:
    """Return a refusal if both A and B get the lock when B asks between two of A's commands."""
    answers_to_b: list[bool] = []

    def let_b_ask_twice(lock: Any, number: int) -> None:
        answers_to_b.extend(bool(probe.make_same_lock(lock).try_lock("b")) for _ in range(2))
        first_answer, second_answer = ["yes" if answer else "no" for answer in answers_to_b]
        probe.tell(
            f"A stops after command {number}; B asks twice: {first_answer} then {second_answer}"
        )

    for _, a_has_lock, facts in probe.interleave(lambda lock: lock.try_lock("a"), let_b_ask_twice):
        if a_has_lock and any(answers_to_b):
            probe.tell("A goes on, and has it too")
            code = "check-then-set" if answers_to_b[0] else "waiter-takes-it"
            return probe.refuse(code, **facts)
        answers_to_b.clear()
    return None


def _check_lost_command(probe: Probe) -> Refusal | None:
    """Return a refusal if try_lock() returns True although its command did not reach Redis.

    The call runs in a child process, because an error in it may leave a threading.Lock locked,
    which would disturb the following checks.
    """
    lock = probe.make_lock()
    success_key = f"{lock.key}:open"  # the child sets this key if it gets the lock

    def acquire_with_lost_command() -> None:
        lock.client.loses_next_command = True
        if lock.try_lock("a"):
            probe.plain_client.set(success_key, "1")

    probe.run_in_child(acquire_with_lost_command)
    if not probe.plain_client.delete(success_key):
        return None
    probe.tell("A asks, and its command does not reach Redis: try_lock() says True all the same")
    return probe.refuse("fail-open")


def _check_ttl(probe: Probe) -> Refusal | None:
    """Return a refusal unless a lock that only A asks for has the requested ttl."""
    lock = probe.make_lock()
    if refusal := probe.check_first_try(lock):
        return refusal
    pttl = probe.wait_for_pttl(lock.key)
    probe.tell(f"A has the lock for {LONG_TTL_MS} ms; PTTL says {pttl}")
    if pttl == -1:  # the key is there, and has no ttl
        return _refuse_missing_ttl(probe)
    facts = {"left": max(pttl, 0), "ttl": LONG_TTL_MS}  # PTTL is negative if the key is gone
    if pttl < WRONG_UNIT_RATIO * LONG_TTL_MS:
        return probe.refuse("wrong-unit", **facts)
    if pttl < MIN_TTL_RATIO * LONG_TTL_MS:
        return probe.refuse("too-short", **facts)
    if pttl > MAX_TTL_RATIO * LONG_TTL_MS:
        return probe.refuse("too-long", **facts)
    lock.unlock("a")
    for ttl_seconds in FRACTIONAL_TTLS_SECONDS:
        if refusal := _check_fractional_ttl(probe, ttl_seconds):
            return refusal
    return None


def _refuse_missing_ttl(probe: Probe) -> Refusal:
    """Return the refusal for a lock whose key has no ttl.

    The code of the refusal says when the lock ends: never, together with its process, or by the
    clock of a buyer.
    """
    lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    lock.try_lock("a")
    waited_ms = _measure_takeover_ms(probe, lock)
    if waited_ms is None:
        return probe.refuse("no-end")
    lock_of_dead_process = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    probe.run_in_child(partial(lock_of_dead_process.try_lock, "a"))
    if _measure_takeover_ms(probe, lock_of_dead_process) is None:
        probe.tell(
            f"a lock of {SHORT_TTL_MS} ms: while A's process lives, B had it in {waited_ms} ms"
        )
        probe.tell(
            f"A's process is gone: B asks for {RECOVERY_TIMEOUT_SECONDS:.1f} s, and is refused"
        )
        return probe.refuse("ends-with-its-holder", waited=waited_ms)
    probe.tell(f"a lock of {SHORT_TTL_MS} ms: B took it over after {waited_ms} ms")
    return probe.refuse("ends-by-a-clock", waited=waited_ms)


def _measure_takeover_ms(probe: Probe, lock: Any) -> int | None:
    """Return the milliseconds after which B gets a lock that A has just acquired.

    B asks again and again, beginning at the end of the ttl. Return None if B does not get the lock
    within RECOVERY_TIMEOUT_SECONDS.
    """
    acquired_at = time.monotonic()
    time.sleep(EXPIRY_SECONDS)
    lock_of_b = probe.make_same_lock(lock)  # B is one buyer, so it keeps one object
    while time.monotonic() - acquired_at < RECOVERY_TIMEOUT_SECONDS:
        if lock_of_b.try_lock("b"):
            return round((time.monotonic() - acquired_at) * 1000)
        time.sleep(RETRY_PAUSE_SECONDS)
    return None


def _check_fractional_ttl(probe: Probe, ttl_seconds: float) -> Refusal | None:
    """Return a refusal if the lock's ttl is wrong for a request with a fraction of a second.

    Raises Undecided if the machine is too slow.
    """
    ttl_ms = round(ttl_seconds * 1000)
    for _ in range(MAX_TRIES):
        lock = probe.make_lock(ttl=ttl_seconds)
        started_at = time.monotonic()
        lock.try_lock("a")
        pttl = probe.wait_for_pttl(lock.key)
        elapsed_ms = (time.monotonic() - started_at) * 1000
        if elapsed_ms < QUICK_SECONDS * 1000:
            break
    else:
        raise Undecided(
            f"each try_lock() took more than {QUICK_SECONDS:.2f} s: the machine is busy"
        )
    if MIN_TTL_RATIO * ttl_ms - elapsed_ms <= pttl <= MAX_TTL_RATIO * ttl_ms:
        return None
    probe.tell(f"A has the lock for {ttl_ms} ms; PTTL says {pttl}")
    left = max(pttl, 0)  # PTTL is negative if the lock has ended, or never got its ttl
    # If the ttl was rounded up to whole seconds, it lacks only the elapsed time by now.
    ms_below_whole_second = (-left) % 1000
    was_rounded_up = ms_below_whole_second <= elapsed_ms + PTTL_ROUNDING_MS
    is_too_long = left > ttl_ms and not was_rounded_up
    return probe.refuse("too-long" if is_too_long else "whole-seconds", left=left, ttl=ttl_ms)


def _check_clock_ahead(probe: Probe) -> Refusal | None:
    """Return a refusal if a buyer whose clock is ahead gets a longer ttl."""
    lock = probe.make_lock()
    return probe.check_clock_ahead(lock, partial(lock.try_lock, "a"), "A has the lock")


def _check_ttl_after_refusal(probe: Probe) -> Refusal | None:
    """Return a refusal if a try of B extends the ttl of A's lock.

    Raises Undecided if the machine is so slow that A's lock may have ended before B asked.
    """
    for _ in range(MAX_TRIES):
        started_at = time.monotonic()
        lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
        lock.try_lock("a")
        time.sleep(SHORT_TTL_SECONDS / 3)
        pttl_before = int(probe.plain_client.pttl(lock.key))
        probe.make_same_lock(lock).try_lock("b")
        pttl_after = int(probe.plain_client.pttl(lock.key))
        if time.monotonic() - started_at < QUICK_SECONDS:
            break
    else:
        raise Undecided(
            f"each try of A and B took more than {QUICK_SECONDS:.2f} s: the machine is busy"
        )
    probe.tell(f"A holds it, PTTL {pttl_before}; B asks and is refused, PTTL {pttl_after}")
    if pttl_after > pttl_before:
        return probe.refuse("waiters-renew", before=pttl_before, after=pttl_after)
    return None


def _check_killed_holder(probe: Probe) -> Refusal | None:
    """Kill A after each of its commands. Return a refusal unless B then gets the lock in time.

    If the ttl of A's key is too long, return a refusal at once.
    """
    first_lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    command_count = probe.count_commands(partial(first_lock.try_lock, "a"))
    for number in range(1, command_count + 1):
        lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
        if not probe.kill_after(number, partial(lock.try_lock, "a")):
            continue  # this try sent fewer commands than the first one
        pttl = int(probe.plain_client.pttl(lock.key))
        probe.tell(f"A is killed after command {number} of {command_count}; PTTL says {pttl}")
        if pttl > MAX_TTL_RATIO * SHORT_TTL_MS:
            return probe.refuse("too-long", left=pttl, ttl=SHORT_TTL_MS)
        if not _is_granted_in_time(probe.make_same_lock(lock)):
            probe.tell(f"B has asked for {RECOVERY_TIMEOUT_SECONDS:.1f} s, and is still refused")
            return probe.refuse("crash-between", command=number, left=pttl)
    return None


def _is_granted_in_time(lock_of_b: Any) -> bool:
    """Return whether B gets the lock. B asks until RECOVERY_TIMEOUT_SECONDS have passed."""
    deadline = time.monotonic() + RECOVERY_TIMEOUT_SECONDS
    while True:
        asked_at = time.monotonic()
        if lock_of_b.try_lock("b"):
            return True
        if asked_at > deadline:  # so B is refused even after the deadline
            return False
        time.sleep(RETRY_PAUSE_SECONDS)


def _check_end_of_living_holder(probe: Probe) -> Refusal | None:
    """Return a refusal if a lock lasts longer than its ttl although its holder is still alive."""
    lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    lock.try_lock("a")
    pttl = int(probe.plain_client.pttl(lock.key))
    if pttl > MAX_TTL_RATIO * SHORT_TTL_MS:
        probe.tell(f"A takes a lock of {SHORT_TTL_MS} ms; PTTL says {pttl}")
        return probe.refuse("too-long", left=pttl, ttl=SHORT_TTL_MS)
    waited_ms = 2 * SHORT_TTL_MS
    time.sleep(waited_ms / 1000)
    pttl = int(probe.plain_client.pttl(lock.key))
    if pttl == -2:  # the key is gone
        return None
    probe.tell(f"A took a lock of {SHORT_TTL_MS} ms {waited_ms / 1000:.1f} s ago; PTTL says {pttl}")
    return probe.refuse("renewed-here", ttl=SHORT_TTL_MS, waited=waited_ms)


def _check_own_release(probe: Probe) -> Refusal | None:
    """Return a refusal unless unlock() deletes the lock of its holder, and returns a true value."""
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
    """Return whether a key is gone. A key that is about to expire counts as gone.

    A participant may delete a key by PEXPIRE with one millisecond instead of DEL.
    """
    _wait_if_about_to_expire(probe, key)
    return not probe.plain_client.exists(key)


def _wait_if_about_to_expire(probe: Probe, key: str) -> None:
    """If a key is about to expire, wait until it is gone."""
    if 0 <= int(probe.plain_client.pttl(key)) < 1000 * IMMEDIATE_EXPIRY_SECONDS:
        time.sleep(2 * IMMEDIATE_EXPIRY_SECONDS)


def _refuse_remaining_key(probe: Probe, lock: Any, returned: object) -> Refusal:
    """Return the refusal for an unlock() that did not delete the key of its holder.

    returned  what unlock() returned
    """
    if _frees_other_lock(probe):
        probe.tell("B has a lock, A gives it back: B's lock is gone")
        return probe.refuse("frees-others-only", returned=repr(returned))
    if not returned and lock.client.has_run_script():
        return probe.refuse("script-arguments", returned=repr(returned))
    refusal = _explain_remaining_key(probe, lock)
    if refusal and refusal.code == "deletes-another-key":
        return refusal
    # unlock() probably compared bytes, which the client returns, with a str.
    compares_bytes = lock.client.has_received_bytes and not returned
    code = "bytes-and-str" if compares_bytes else "never-released"
    return probe.refuse(code, returned=repr(returned))


def _frees_other_lock(probe: Probe) -> bool:
    """Return whether A's release deletes a lock that B holds."""
    lock = probe.make_lock()
    lock.try_lock("b")
    probe.make_same_lock(lock).unlock("a")
    return _is_gone(probe, lock.key)


def _check_late_release(probe: Probe) -> Refusal | None:
    """Return a refusal if a release after the end of A's lock changes B's lock or returns True."""
    lock = probe.make_lock()
    lock.try_lock("a")
    content_of_a = probe.plain_client.dump(lock.key)
    _hand_lock_to_b(probe, lock)
    probe.tell("A had the lock; it ended, and B has it now")
    lock_of_b = probe.read_state(lock.key)
    returned = lock.unlock("a")
    _wait_if_about_to_expire(probe, lock.key)
    after = probe.read_state(lock.key)
    if after.redis_type == "none":
        probe.tell("A, who is late, gives it back: B's lock is gone")
        is_same_value = lock_of_b.content is not None and content_of_a == lock_of_b.content
        return probe.refuse("value-not-unique" if is_same_value else "deletes-blindly")
    if refusal := _check_third_holder(probe):
        return refusal
    if not _is_unchanged(lock_of_b, after):
        probe.tell(f"A, who is late, gives it back. B's lock was: {lock_of_b}; it is: {after}")
        return probe.refuse("changes-anothers-lock", before=str(lock_of_b), after=str(after))
    probe.tell(f"A, who is late, gives it back: unlock() says {returned!r}, B's lock is there")
    return probe.refuse("lies", returned=repr(returned)) if returned else None


def _check_third_holder(probe: Probe) -> Refusal | None:
    """Return a refusal if C gets B's lock between two commands of A's late release."""
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
    """Return a refusal if A's release of a free lock creates a key or returns True."""
    lock = probe.make_lock()
    lock.try_lock("a")
    probe.plain_client.delete(lock.key)
    returned = lock.unlock("a")
    after = probe.read_state(lock.key)
    probe.tell(f"A had the lock; it ended, and nobody has it. unlock() says {returned!r}: {after}")
    if after.redis_type != "none":
        return probe.refuse("changes-anothers-lock", before="no key", after=str(after))
    return probe.refuse("nothing-to-free", returned=repr(returned)) if returned else None


def _check_release_between_commands(probe: Probe) -> Refusal | None:
    """Return a refusal if A frees a lock that B acquired between two of A's commands."""
    locks_of_b: dict[str, KeyState] = {}

    def let_b_acquire(lock: Any, number: int) -> None:
        _hand_lock_to_b(probe, lock)
        locks_of_b[lock.key] = probe.read_state(lock.key)
        probe.tell("A has the lock")
        probe.tell(f"A stops after command {number} of its release; its lock ends, B takes it")

    for lock, returned, facts in probe.interleave(
        lambda lock: lock.unlock("a"), let_b_acquire, prepare=lambda lock: lock.try_lock("a")
    ):
        if lock.key not in locks_of_b:  # A was not interrupted: its release sent fewer commands
            continue
        after = probe.read_state(lock.key)
        if after.redis_type == "none":
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
    probe.plain_client.delete(lock.key)
    probe.make_same_lock(lock).try_lock("b")
