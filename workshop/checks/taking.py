"""The checks of lessons 3 to 5: how a participant's lock is acquired, expires and is released.

The checks are check_one_command(), check_ending() and check_release(). lessons.toml lists them as
`taking.one_command` and so on. Each runs several functions `_check_...`, in which the buyers A, B
and C try to get the same lock, with the tokens "a", "b" and "c". Such a function returns a Refusal,
the reason why the lock is not accepted, or None. lessons.toml explains the codes of the refusals,
such as "loser-unlocks".
"""

import time
from functools import partial
from types import ModuleType
from typing import Any

from workshop.checks.probe import (
    ABOUT_TO_EXPIRE_SECONDS,
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
#: How long a purchase may take. A lock of lesson 3 needs no ttl; if it has one, the ttl must not be
#: shorter than this.
LONGEST_PURCHASE_MS = 900
#: Tolerated difference between PTTL and the elapsed time: Redis counts whole milliseconds.
PTTL_ROUNDING_MS = 2.0
#: If a ttl is below this part of the requested ttl, seconds and milliseconds were confused.
WRONG_UNIT_RATIO = 0.2
#: A measurement that takes longer is repeated, because a lock with SHORT_TTL_SECONDS may have
#: ended meanwhile.
MAX_MEASUREMENT_SECONDS = SHORT_TTL_SECONDS / 1.2
#: Time after which a lock with SHORT_TTL_SECONDS has certainly expired.
EXPIRY_SECONDS = 1.2 * SHORT_TTL_SECONDS
#: Time between two tries of a buyer who tries again until it gets the lock.
RETRY_PAUSE_SECONDS = 0.02


def check_one_command(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the lock of lesson 3, or None.

    In lessons.toml, the name of this check is `taking.one_command`.
    """
    checks = (
        _check_key_in_redis,
        _check_released_lock_is_free,
        _check_second_holder,
        _check_release_after_refusal,
        _check_other_process,
        _check_rival_between_commands,
        _check_lost_command,
    )
    return run_checks(module, *checks)


def check_ending(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the lock of lesson 4, or None.

    In lessons.toml, the name of this check is `taking.ending`.
    """
    checks = (
        _check_ttl,
        _check_clock_ahead,
        _check_second_holder,
        _check_rival_between_commands,
        _check_expiry_while_holder_lives,
        _check_ttl_after_refusal,
        _check_killed_holder,
    )
    return run_checks(module, *checks)


def check_release(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the release of lesson 5, or None.

    In lessons.toml, the name of this check is `taking.release`.
    """
    return run_checks(
        module,
        _check_own_release,
        _check_late_release,
        _check_release_of_free_lock,
        _check_release_between_commands,
    )


def _check_key_in_redis(probe: Probe) -> Refusal | None:
    """Return a refusal unless try_lock() sets the key `lock.key`.

    A key that expires before a purchase can end is refused, too.
    """
    lock = probe.make_lock()
    keys_before = set(probe.plain_client.keys())
    if refusal := probe.check_first_try(lock):
        return refusal
    probe.add_to_story("A has the lock")
    if refusal := _check_early_end(probe, lock):
        return refusal
    if probe.plain_client.exists(lock.key):
        lock.unlock("a")
        return None
    other_keys = [key.decode() for key in set(probe.plain_client.keys()) - keys_before]
    if other_keys:
        probe.add_to_story(f"Redis has no key {lock.key}, but {other_keys[0]}")
        return probe.make_refusal("another-key", key=lock.key, other=other_keys[0])
    probe.add_to_story("Redis has no key: no other process can see it")
    return probe.make_refusal("still-in-one-process")


def _check_early_end(probe: Probe, lock: Any) -> Refusal | None:
    """Return a refusal if buyer A's lock expires before a purchase can end.

    On a slow machine the key may have expired already. So if A sent commands, but there is no key,
    try again with a new lock.
    """
    for _ in range(MAX_TRIES):
        pttl = int(probe.plain_client.pttl(lock.key))
        if 0 <= pttl < LONGEST_PURCHASE_MS:
            probe.add_to_story(f"PTTL is {pttl}: the lock ends by itself, and A has only begun")
            return probe.make_refusal("ends-too-early", pttl=pttl)
        has_key = pttl != -2
        # The participant may use another key that contains the name of the lock.
        keys_with_name = probe.plain_client.keys(f"*{lock.name}*")
        if has_key or keys_with_name or not lock.client.sent_commands:
            return None
        lock = probe.make_lock()
        lock.try_lock("a")
    return None


def _check_second_holder(probe: Probe) -> Refusal | None:
    """Return a refusal unless buyer A gets a free lock, and buyers B and C are then refused."""
    lock = probe.make_lock()
    if refusal := _check_free_lock_is_granted(probe, lock, "a"):
        return refusal
    if probe.make_same_lock(lock).try_lock("b"):
        return _refuse_second_holder(probe)
    if probe.make_same_lock(lock).try_lock("c"):
        probe.add_to_story("A has the lock; B tries and is refused; C tries, and gets it too")
        return probe.make_refusal("loser-unlocks")
    lock.unlock("a")
    return None


def _refuse_second_holder(probe: Probe) -> Refusal:
    """Return the refusal for a lock that buyer B gets while buyer A holds it.

    The code of the refusal depends on how B's call of try_lock() changes the key.
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
    probe.add_to_story(f"A has the lock: {before.text}; B tries, and gets it too: {after.text}")
    return probe.make_refusal(code, before=before.text, after=after.text)


def _check_free_lock_is_granted(probe: Probe, lock: Any, token: str) -> Refusal | None:
    """Return a refusal if try_lock() returns False for a free lock and sets no key.

    If it returns False but sets the key, Probe.check_first_try() refuses the file instead.

    token  the token of the buyer who tries, such as "a"; in upper case it is the buyer's name
    """
    return_value = lock.try_lock(token)
    if return_value or probe.plain_client.exists(lock.key):
        return None
    probe.add_to_story(f"Redis has no key {lock.key}; {token.upper()} tries, and is refused")
    return probe.make_refusal("refused-here", returned=repr(return_value))


def _check_released_lock_is_free(probe: Probe) -> Refusal | None:
    """Return a refusal unless buyer A gets a free lock, and buyer B gets it after A's release.

    The release must not delete the key of another lock.
    """
    lock = probe.make_lock()
    if refusal := _check_free_lock_is_granted(probe, lock, "a"):
        return refusal
    key_of_other_lock = f"{lock.key}:of-another"
    probe.plain_client.set(key_of_other_lock, "1")
    lock.client.clear_records()
    return_value = lock.unlock("a")
    is_free = not probe.plain_client.exists(lock.key)
    if not probe.plain_client.delete(key_of_other_lock):  # unlock() has deleted it
        probe.add_to_story("A released its lock; the lock of another product is gone too")
        return probe.make_refusal("frees-other-locks")
    lock_of_b = probe.make_same_lock(lock)
    if lock_of_b.try_lock("b"):
        lock_of_b.unlock("b")
        return None
    probe.add_to_story(
        f"A released the lock, unlock() returns {return_value!r}; B tries, and is refused"
    )
    if is_free:  # the lock is free in Redis, so something in this process refuses B
        return probe.make_refusal("refused-here", returned="False")  # what try_lock("b") returned
    return _explain_remaining_key(probe, lock) or probe.make_refusal(
        "never-released", returned=repr(return_value)
    )


def _explain_remaining_key(probe: Probe, lock: Any) -> Refusal | None:
    """Explain why unlock() has not deleted its key. Return None if the cause is unknown.

    The known causes: unlock() deletes a key with another name, or it compares the token, a str,
    with the bytes that the client returns.
    """
    other_deleted_keys = [key for key in lock.client.deleted_keys if key != lock.key]
    if other_deleted_keys:
        other_key = other_deleted_keys[0]
        probe.add_to_story(f"unlock() deletes the key {other_key}; {lock.key} is still there")
        return probe.make_refusal("deletes-another-key", other=other_key, key=lock.key)
    if lock.client.has_received_bytes:
        return probe.make_refusal("never-equal")
    return None


def _check_release_after_refusal(probe: Probe) -> Refusal | None:
    """Return a refusal if buyer A cannot release its lock after buyer B has failed to get it."""
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
    probe.add_to_story(f"A has the lock: {held_by_a}; B tries and is refused: {after_try_of_b}")
    probe.add_to_story(f"A releases it: {after_release}; C tries, and is refused")
    return probe.make_refusal(
        "loser-counts", before=held_by_a, after=after_try_of_b, after_release=after_release
    )


def _check_other_process(probe: Probe) -> Refusal | None:
    """Return a refusal if the lock stays taken in this process after it was deleted in Redis.

    Buyer A acquires the lock in another process, and buyer B is refused in this one. Then the key
    is deleted, and buyer C tries in this process.
    """
    lock = probe.make_lock()
    probe.run_in_child(partial(lock.try_lock, "a"))
    probe.make_same_lock(lock).try_lock("b")
    probe.plain_client.delete(lock.key)
    probe.add_to_story(
        "A has the lock in another process; B tries here and is refused; A's lock ends"
    )
    return _check_free_lock_is_granted(probe, probe.make_same_lock(lock), "c")


def _check_rival_between_commands(probe: Probe) -> Refusal | None:
    """Return a refusal if the buyers A and B get the lock at the same time.

    B tries to get the lock between two commands of A's try_lock().
    """
    tries_of_b: list[bool] = []  # for each try of B: whether B got the lock

    def let_b_try_twice(lock: Any, number: int) -> None:
        tries_of_b.extend(bool(probe.make_same_lock(lock).try_lock("b")) for _ in range(2))
        first_try, second_try = ["yes" if has_lock else "no" for has_lock in tries_of_b]
        probe.add_to_story(
            f"A stops after command {number}; B tries twice: {first_try} then {second_try}"
        )

    for _, a_has_lock, command_numbers in probe.interrupt_after_each_command(
        lambda lock: lock.try_lock("a"), let_b_try_twice
    ):
        if a_has_lock and any(tries_of_b):
            probe.add_to_story("A goes on, and has it too")
            code = "check-then-set" if tries_of_b[0] else "waiter-takes-it"
            return probe.make_refusal(code, **command_numbers)
        tries_of_b.clear()
    return None


def _check_lost_command(probe: Probe) -> Refusal | None:
    """Return a refusal if try_lock() returns True although its command did not reach Redis.

    try_lock() runs in a child process. If it uses a threading.Lock, the error of the lost command
    may leave the threading.Lock locked, which would disturb the following checks in this process.
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
    probe.add_to_story(
        "A tries, and its command does not reach Redis: try_lock() returns True all the same"
    )
    return probe.make_refusal("fail-open")


def _check_ttl(probe: Probe) -> Refusal | None:
    """Return a refusal unless the lock of a single buyer has the requested ttl."""
    lock = probe.make_lock()
    if refusal := probe.check_first_try(lock):
        return refusal
    pttl = probe.wait_for_pttl(lock.key)
    probe.add_to_story(f"A has the lock for {LONG_TTL_MS} ms; PTTL is {pttl}")
    if pttl == -1:  # the key is there, and has no ttl
        return _refuse_missing_ttl(probe)
    details = {"pttl": max(pttl, 0), "ttl": LONG_TTL_MS}  # PTTL is negative if the key is gone
    if pttl < WRONG_UNIT_RATIO * LONG_TTL_MS:
        return probe.make_refusal("wrong-unit", **details)
    if pttl < MIN_TTL_RATIO * LONG_TTL_MS:
        return probe.make_refusal("too-short", **details)
    if pttl > MAX_TTL_RATIO * LONG_TTL_MS:
        return probe.make_refusal("too-long", **details)
    lock.unlock("a")
    for ttl_seconds in FRACTIONAL_TTLS_SECONDS:
        if refusal := _check_fractional_ttl(probe, ttl_seconds):
            return refusal
    return None


def _refuse_missing_ttl(probe: Probe) -> Refusal:
    """Return the refusal for a lock whose key has no ttl in Redis.

    Buyer B tries to get two locks of buyer A. A's process lives while B tries to get the first
    lock, and has ended when B tries to get the second. The code of the refusal depends on what ends
    a lock:

    no-end                nothing ends the lock, so B gets neither
    ends-with-its-holder  A's process ends the lock, so B gets only the first
    ends-by-a-clock       B ends the lock when the time in its key is over, so B gets both
    """
    lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    lock.try_lock("a")
    takeover_ms = _measure_takeover_ms(probe, lock)
    if takeover_ms is None:
        return probe.make_refusal("no-end")
    lock_of_dead_process = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    probe.run_in_child(partial(lock_of_dead_process.try_lock, "a"))
    if _measure_takeover_ms(probe, lock_of_dead_process) is None:
        probe.add_to_story(
            f"a lock of {SHORT_TTL_MS} ms: while A's process lives, B had it in {takeover_ms} ms"
        )
        probe.add_to_story(
            f"A's process is gone: B tries for {RECOVERY_TIMEOUT_SECONDS:.1f} s, and is refused"
        )
        return probe.make_refusal("ends-with-its-holder", waited=takeover_ms)
    probe.add_to_story(f"a lock of {SHORT_TTL_MS} ms: B took it over after {takeover_ms} ms")
    return probe.make_refusal("ends-by-a-clock", waited=takeover_ms)


def _measure_takeover_ms(probe: Probe, lock: Any) -> int | None:
    """Return the milliseconds after which buyer B gets a lock that buyer A has just acquired.

    B waits for the end of the ttl, and then tries repeatedly. Return None if B does not get the
    lock within RECOVERY_TIMEOUT_SECONDS.
    """
    acquired_at = time.monotonic()
    time.sleep(EXPIRY_SECONDS)
    lock_of_b = probe.make_same_lock(lock)  # all tries of a buyer use one lock object
    while time.monotonic() - acquired_at < RECOVERY_TIMEOUT_SECONDS:
        if lock_of_b.try_lock("b"):
            return round((time.monotonic() - acquired_at) * 1000)
        time.sleep(RETRY_PAUSE_SECONDS)
    return None


def _check_fractional_ttl(probe: Probe, ttl_seconds: float) -> Refusal | None:
    """Return a refusal if the lock gets a wrong ttl when the requested ttl is not whole seconds.

    Raises Undecided if the machine is too slow.
    """
    ttl_ms = round(ttl_seconds * 1000)
    for _ in range(MAX_TRIES):
        lock = probe.make_lock(ttl=ttl_seconds)
        started_at = time.monotonic()
        lock.try_lock("a")
        pttl = probe.wait_for_pttl(lock.key)
        elapsed_ms = (time.monotonic() - started_at) * 1000
        if elapsed_ms < MAX_MEASUREMENT_SECONDS * 1000:
            break
    else:
        raise Undecided(
            f"each try_lock() took more than {MAX_MEASUREMENT_SECONDS:.2f} s: the machine is busy"
        )
    if MIN_TTL_RATIO * ttl_ms - elapsed_ms <= pttl <= MAX_TTL_RATIO * ttl_ms:
        return None
    probe.add_to_story(f"A has the lock for {ttl_ms} ms; PTTL is {pttl}")
    remaining_ms = max(pttl, 0)  # PTTL is negative if the lock has ended, or never got its ttl
    # If the ttl was rounded up to whole seconds, PTTL is now below a whole number of seconds by at
    # most the elapsed time.
    ms_below_whole_second = (-remaining_ms) % 1000
    was_rounded_up = ms_below_whole_second <= elapsed_ms + PTTL_ROUNDING_MS
    is_too_long = remaining_ms > ttl_ms and not was_rounded_up
    code = "too-long" if is_too_long else "whole-seconds"
    return probe.make_refusal(code, pttl=remaining_ms, ttl=ttl_ms)


def _check_clock_ahead(probe: Probe) -> Refusal | None:
    """Return a refusal if a buyer whose clock is ahead gets a lock with a longer ttl."""
    lock = probe.make_lock()
    return probe.check_clock_ahead(lock, partial(lock.try_lock, "a"), "A has the lock")


def _check_ttl_after_refusal(probe: Probe) -> Refusal | None:
    """Return a refusal if an unsuccessful try of buyer B extends the ttl of buyer A's lock.

    Raises Undecided if the machine is so slow that A's lock may have ended before B tried.
    """
    for _ in range(MAX_TRIES):
        started_at = time.monotonic()
        lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
        lock.try_lock("a")
        time.sleep(SHORT_TTL_SECONDS / 3)
        pttl_before = int(probe.plain_client.pttl(lock.key))
        probe.make_same_lock(lock).try_lock("b")
        pttl_after = int(probe.plain_client.pttl(lock.key))
        if time.monotonic() - started_at < MAX_MEASUREMENT_SECONDS:
            break
    else:
        raise Undecided(
            f"each try of A and B took more than {MAX_MEASUREMENT_SECONDS:.2f} s: "
            "the machine is busy"
        )
    probe.add_to_story(f"A holds it, PTTL {pttl_before}; B tries and is refused, PTTL {pttl_after}")
    if pttl_after > pttl_before:
        return probe.make_refusal("waiters-renew", before=pttl_before, after=pttl_after)
    return None


def _check_killed_holder(probe: Probe) -> Refusal | None:
    """Return a refusal if a lock outlives its killed holder for too long.

    Buyer A is killed after the first command of its try_lock(), then after the second, and so on.
    Each time buyer B must get the lock within RECOVERY_TIMEOUT_SECONDS.
    """
    first_lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    command_count = probe.count_commands(partial(first_lock.try_lock, "a"))
    for number in range(1, command_count + 1):
        lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
        if not probe.kill_after_command(number, partial(lock.try_lock, "a")):
            continue  # this try_lock() sent fewer commands than the first one
        pttl = int(probe.plain_client.pttl(lock.key))
        probe.add_to_story(f"A is killed after command {number} of {command_count}; PTTL is {pttl}")
        if pttl > MAX_TTL_RATIO * SHORT_TTL_MS:
            return probe.make_refusal("too-long", pttl=pttl, ttl=SHORT_TTL_MS)
        if not _is_granted_in_time(probe.make_same_lock(lock)):
            probe.add_to_story(
                f"B has tried for {RECOVERY_TIMEOUT_SECONDS:.1f} s, and is still refused"
            )
            return probe.make_refusal("crash-between", command=number, pttl=pttl)
    return None


def _is_granted_in_time(lock_of_b: Any) -> bool:
    """Return whether buyer B gets the lock within RECOVERY_TIMEOUT_SECONDS.

    B tries repeatedly, and for the last time just after the deadline.
    """
    deadline = time.monotonic() + RECOVERY_TIMEOUT_SECONDS
    while True:
        tried_at = time.monotonic()
        if lock_of_b.try_lock("b"):
            return True
        if tried_at > deadline:
            return False
        time.sleep(RETRY_PAUSE_SECONDS)


def _check_expiry_while_holder_lives(probe: Probe) -> Refusal | None:
    """Return a refusal if a lock lasts longer than its ttl although its holder is still alive."""
    lock = probe.make_lock(ttl=SHORT_TTL_SECONDS)
    lock.try_lock("a")
    pttl = int(probe.plain_client.pttl(lock.key))
    if pttl > MAX_TTL_RATIO * SHORT_TTL_MS:
        probe.add_to_story(f"A takes a lock of {SHORT_TTL_MS} ms; PTTL is {pttl}")
        return probe.make_refusal("too-long", pttl=pttl, ttl=SHORT_TTL_MS)
    waited_ms = 2 * SHORT_TTL_MS
    time.sleep(waited_ms / 1000)
    pttl = int(probe.plain_client.pttl(lock.key))
    if pttl == -2:  # the key is gone
        return None
    probe.add_to_story(
        f"A took a lock of {SHORT_TTL_MS} ms {waited_ms / 1000:.1f} s ago; PTTL is {pttl}"
    )
    return probe.make_refusal("renewed-here", ttl=SHORT_TTL_MS, waited=waited_ms)


def _check_own_release(probe: Probe) -> Refusal | None:
    """Return a refusal unless unlock() deletes the lock of its holder, and returns a true value."""
    lock = probe.make_lock()
    if refusal := probe.check_first_try(lock):
        return refusal
    lock.client.clear_records()
    return_value = lock.unlock("a")
    probe.add_to_story(f"A has the lock and releases it: unlock() returns {return_value!r}")
    if not _is_gone(probe, lock.key):
        probe.add_to_story("its key is still there")
        return _refuse_remaining_key(probe, lock, return_value)
    if return_value is None:
        return probe.make_refusal("no-return", function="unlock")
    return None if return_value else probe.make_refusal("denies", returned=repr(return_value))


def _is_gone(probe: Probe, key: str) -> bool:
    """Return whether a key is gone. A key that is about to expire counts as gone.

    A participant may delete a key by PEXPIRE with one millisecond instead of DEL.
    """
    _wait_if_about_to_expire(probe, key)
    return not probe.plain_client.exists(key)


def _wait_if_about_to_expire(probe: Probe, key: str) -> None:
    """If a key is about to expire, wait until it is gone."""
    if 0 <= int(probe.plain_client.pttl(key)) < 1000 * ABOUT_TO_EXPIRE_SECONDS:
        time.sleep(2 * ABOUT_TO_EXPIRE_SECONDS)


def _refuse_remaining_key(probe: Probe, lock: Any, return_value: object) -> Refusal:
    """Return the refusal for an unlock() that did not delete the key of its holder.

    return_value  what unlock() returned
    """
    if _is_lock_of_b_deleted_by_a(probe):
        probe.add_to_story("B has a lock, A releases it: B's lock is gone")
        return probe.make_refusal("frees-others-only", returned=repr(return_value))
    if not return_value and lock.client.has_run_script():
        return probe.make_refusal("script-arguments", returned=repr(return_value))
    refusal = _explain_remaining_key(probe, lock)
    if refusal and refusal.code == "deletes-another-key":
        return refusal
    # unlock() probably compared bytes, which the client returns, with a str.
    compares_bytes = lock.client.has_received_bytes and not return_value
    code = "bytes-and-str" if compares_bytes else "never-released"
    return probe.make_refusal(code, returned=repr(return_value))


def _is_lock_of_b_deleted_by_a(probe: Probe) -> bool:
    """Return whether unlock() with buyer A's token deletes a lock that buyer B holds."""
    lock = probe.make_lock()
    lock.try_lock("b")
    probe.make_same_lock(lock).unlock("a")
    return _is_gone(probe, lock.key)


def _check_late_release(probe: Probe) -> Refusal | None:
    """Return a refusal if buyer A's late release changes buyer B's lock or returns True.

    The release is late because A's lock has ended, and B has acquired it since.
    """
    lock = probe.make_lock()
    lock.try_lock("a")
    content_of_a = probe.plain_client.dump(lock.key)
    _hand_lock_to_b(probe, lock)
    probe.add_to_story("A had the lock; it ended, and B has it now")
    state_before = probe.read_state(lock.key)
    return_value = lock.unlock("a")
    _wait_if_about_to_expire(probe, lock.key)
    state_after = probe.read_state(lock.key)
    if state_after.redis_type == "none":
        probe.add_to_story("A, who is late, releases it: B's lock is gone")
        is_same_value = state_before.content is not None and content_of_a == state_before.content
        return probe.make_refusal("value-not-unique" if is_same_value else "deletes-blindly")
    if refusal := _check_third_holder(probe):
        return refusal
    if not _is_unchanged(state_before, state_after):
        probe.add_to_story(
            f"A, who is late, releases it. B's lock was: {state_before}; it is: {state_after}"
        )
        return probe.make_refusal(
            "changes-anothers-lock", before=str(state_before), after=str(state_after)
        )
    probe.add_to_story(
        f"A, who is late, releases it: unlock() returns {return_value!r}, B's lock is there"
    )
    return probe.make_refusal("lies", returned=repr(return_value)) if return_value else None


def _check_third_holder(probe: Probe) -> Refusal | None:
    """Return a refusal if buyer C gets buyer B's lock during buyer A's late release.

    A's release comes after the end of A's lock, while B holds the lock. C tries to get the lock
    after each command of this release.
    """
    tries_of_c: list[bool] = []  # for each try of C: whether C got the lock

    def let_a_acquire_and_lose(lock: Any) -> None:
        lock.try_lock("a")
        _hand_lock_to_b(probe, lock)

    def let_c_try(lock: Any, number: int) -> None:
        tries_of_c.append(bool(probe.make_same_lock(lock).try_lock("c")))

    for _, _, command_numbers in probe.interrupt_after_each_command(
        lambda lock: lock.unlock("a"), let_c_try, prepare=let_a_acquire_and_lose
    ):
        if any(tries_of_c):
            probe.add_to_story(
                f"A, who is late, stops after command {command_numbers['command']} of its release"
            )
            probe.add_to_story("C tries, and gets the lock while B is inside")
            return probe.make_refusal("away-for-a-moment", **command_numbers)
    return None


def _is_unchanged(before: KeyState, after: KeyState) -> bool:
    """Return whether a lock has the same content and expires at the same time."""
    return after.content == before.content and before.pttl - LATENESS_MS < after.pttl <= before.pttl


def _check_release_of_free_lock(probe: Probe) -> Refusal | None:
    """Return a refusal if the release of a lock that has ended creates a key or returns True."""
    lock = probe.make_lock()
    lock.try_lock("a")
    probe.plain_client.delete(lock.key)
    return_value = lock.unlock("a")
    state = probe.read_state(lock.key)
    probe.add_to_story(
        f"A had the lock; it ended, and nobody has it. unlock() returns {return_value!r}: {state}"
    )
    if state.redis_type != "none":
        return probe.make_refusal("changes-anothers-lock", before="no key", after=str(state))
    if return_value:
        return probe.make_refusal("nothing-to-free", returned=repr(return_value))
    return None


def _check_release_between_commands(probe: Probe) -> Refusal | None:
    """Return a refusal if buyer A's release affects a lock of buyer B, or returns True.

    B acquires the lock between two commands of A's release.
    """
    #: Key -> its state just after B has acquired the lock.
    states_of_b: dict[str, KeyState] = {}

    def let_b_acquire(lock: Any, number: int) -> None:
        _hand_lock_to_b(probe, lock)
        states_of_b[lock.key] = probe.read_state(lock.key)
        probe.add_to_story("A has the lock")
        probe.add_to_story(
            f"A stops after command {number} of its release; its lock ends, B takes it"
        )

    for lock, return_value, command_numbers in probe.interrupt_after_each_command(
        lambda lock: lock.unlock("a"), let_b_acquire, prepare=lambda lock: lock.try_lock("a")
    ):
        if lock.key not in states_of_b:  # A was not interrupted: its release sent fewer commands
            continue
        state_before = states_of_b[lock.key]
        state_after = probe.read_state(lock.key)
        if state_after.redis_type == "none":
            probe.add_to_story("A goes on, and so deletes the lock of B")
            return probe.make_refusal("not-atomic-release", **command_numbers)
        if not _is_unchanged(state_before, state_after):
            probe.add_to_story(f"A goes on. B's lock was: {state_before}; it is: {state_after}")
            return probe.make_refusal("not-atomic-release", **command_numbers)
        if return_value:
            probe.add_to_story(f"A goes on: unlock() returns {return_value!r}, B's lock is there")
            return probe.make_refusal(
                "lies-in-between", returned=repr(return_value), **command_numbers
            )
    return None


def _hand_lock_to_b(probe: Probe, lock: Any) -> None:
    """Delete the key of buyer A's lock, as if it had expired, and let buyer B acquire the lock."""
    probe.plain_client.delete(lock.key)
    probe.make_same_lock(lock).try_lock("b")
