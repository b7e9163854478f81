"""The check of lesson 7: only the holder renews its lock, for as long as it works.

Buyers A and B use the same lock, with the tokens "a" and "b". A Refusal is the reason why the
participant's lock is not accepted; lessons.toml explains its code, such as "takes-over".
"""

import time
from functools import partial
from numbers import Real
from types import ModuleType
from typing import Any, NamedTuple

from workshop.checks.probe import (
    LATENESS_MS,
    LONG_TTL_MS,
    MAX_TRIES,
    MAX_TTL_RATIO,
    MIN_TTL_RATIO,
    Probe,
    run_checks,
)
from workshop.refusal import Refusal, Undecided

#: Remaining time of a lock before its renewal. It is longer than a check takes.
REMAINING_MS = 15_000
#: Ttls that are not whole seconds.
FRACTIONAL_TTLS_SECONDS = (0.7, 1.25, 1.75)
#: The ttl of a working holder's lock. Long enough for a busy laptop: a correct exercise leaves a
#: third of the ttl for delays.
WORKING_TTL_SECONDS = 1.2
#: How long the holder works. A lock that is not renewed expires meanwhile.
WORK_SECONDS = 1.6 * WORKING_TTL_SECONDS
#: If a renewal is late by more than this part of the ttl, the machine is too slow, and the check
#: raises Undecided.
MAX_LATENESS_RATIO = 0.2
#: More renewals than this within WORK_SECONDS would keep Redis busy.
MAX_RENEWALS = 100


def check_renewal(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in the renewal of a lock, or None.

    In lessons.toml, the name of this check is `renewal.renewal`.
    """
    return run_checks(
        module,
        _check_who_can_renew,
        _check_clock_ahead,
        _check_fractional_ttls,
        _check_renewal_between_commands,
        _check_working_holder,
    )


def _check_who_can_renew(probe: Probe) -> Refusal | None:
    """Return a refusal unless buyer A can renew exactly the locks that it holds.

    A must not renew buyer B's lock or a free one.
    """
    lock = probe.make_lock()
    probe.plain_client.set(lock.key, "b", px=REMAINING_MS)
    return_value_for_b = lock.renew("a")
    token_after = probe.plain_client.get(lock.key)
    pttl = int(probe.plain_client.pttl(lock.key))
    probe.add_to_story(
        f"B has the lock for {REMAINING_MS} ms; A renews: renew() returns {return_value_for_b!r}, "
        f"PTTL {pttl}"
    )
    if token_after is not None and token_after != b"b":
        text = token_after.decode(errors="replace")
        probe.add_to_story(f"the key held b, B's token; now it holds {text}")
        return probe.make_refusal("takes-over", pttl=pttl)
    if not _has_b_kept_its_lock(probe, lock.key):
        return probe.make_refusal("renews-anybody", pttl=pttl)
    probe.plain_client.delete(lock.key)
    return_value_for_free_lock = lock.renew("a")
    probe.add_to_story(f"nobody has it; A renews: renew() returns {return_value_for_free_lock!r}")
    if probe.plain_client.exists(lock.key):
        return probe.make_refusal("resurrects")
    if refusal := _check_own_renewal(probe, lock):
        return refusal
    if return_value_for_b or return_value_for_free_lock:
        return probe.make_refusal("says-the-wrong-thing")
    return None


def _check_own_renewal(probe: Probe, lock: Any) -> Refusal | None:
    """Return a refusal unless a renewal by the holder, buyer A, restores the whole ttl."""
    probe.plain_client.set(lock.key, "a", px=REMAINING_MS)
    lock.client.clear_records()
    return_value = lock.renew("a")
    pttl = int(probe.plain_client.pttl(lock.key))
    probe.add_to_story(
        f"A has it for {REMAINING_MS} ms and renews: renew() returns {return_value!r}, PTTL {pttl}"
    )
    details = {
        "before": REMAINING_MS,
        "pttl": pttl,
        "ttl": LONG_TTL_MS,
        "returned": repr(return_value),
    }
    # just-longer: the renewal has removed the ttl (-1), or has set one that is too long.
    if pttl == -1 or pttl > LONG_TTL_MS * MAX_TTL_RATIO:
        return probe.make_refusal("just-longer", **details)
    if REMAINING_MS - LATENESS_MS < pttl <= REMAINING_MS:  # as before the renewal
        return probe.make_refusal(_find_code_of_missing_renewal(lock, return_value), **details)
    if pttl <= REMAINING_MS:
        return probe.make_refusal("wrong-unit", **details)
    if pttl < LONG_TTL_MS * MIN_TTL_RATIO:
        return probe.make_refusal("too-short", **details)
    if return_value is None:
        return probe.make_refusal("no-return", function="renew")
    return None if return_value else probe.make_refusal("says-the-wrong-thing")


def _find_code_of_missing_renewal(lock: Any, return_value: object) -> str:
    """Return the code of the refusal for a renew() that does not extend its holder's lock.

    return_value  what renew() returned
    """
    if not return_value and lock.client.has_run_script():
        return "script-arguments"
    if not return_value and lock.client.has_received_bytes:
        return "bytes-and-str"
    return "expires"


def _check_clock_ahead(probe: Probe) -> Refusal | None:
    """Return a refusal if a renewal sets too long a ttl when the buyer's clock is ahead."""
    lock = probe.make_lock()
    probe.plain_client.set(lock.key, "a", px=REMAINING_MS)
    return probe.check_clock_ahead(lock, partial(lock.renew, "a"), "A renews its lock")


def _check_fractional_ttls(probe: Probe) -> Refusal | None:
    """Return a refusal if a renewal sets a wrong ttl when the lock's ttl is not whole seconds.

    Raises Undecided if the machine is too slow.
    """
    for ttl_seconds in FRACTIONAL_TTLS_SECONDS:
        ttl_ms = round(ttl_seconds * 1000)
        lock = probe.make_lock(ttl=ttl_seconds)
        for _ in range(MAX_TRIES):
            started_at = time.monotonic()
            probe.plain_client.set(lock.key, "a", px=ttl_ms // 2)
            lock.renew("a")
            pttl = int(probe.plain_client.pttl(lock.key))
            elapsed_ms = (time.monotonic() - started_at) * 1000
            if elapsed_ms < ttl_ms / 2:  # otherwise the lock may have ended before the renewal
                break
        else:
            raise Undecided(f"each renewal took more than {ttl_ms / 2:g} ms: the machine is busy")
        if not MIN_TTL_RATIO * ttl_ms - elapsed_ms <= pttl <= MAX_TTL_RATIO * ttl_ms:
            probe.add_to_story(f"A has a lock of {ttl_ms} ms and renews it: PTTL {pttl}")
            return probe.make_refusal("whole-seconds", pttl=pttl, ttl=ttl_ms)
    return None


def _check_renewal_between_commands(probe: Probe) -> Refusal | None:
    """Return a refusal if buyer A renews a lock of buyer B.

    B acquires the lock between two commands of A's renewal.
    """

    def hand_lock_to_b(lock: Any, number: int) -> None:
        probe.plain_client.set(lock.key, "b", px=REMAINING_MS)
        probe.add_to_story("A has the lock")
        probe.add_to_story(
            f"A stops after command {number} of its renewal; its lock ends, B takes it"
        )

    for lock, _, command_numbers in probe.interrupt_after_each_command(
        lambda lock: lock.renew("a"),
        hand_lock_to_b,
        prepare=lambda lock: probe.plain_client.set(lock.key, "a", px=REMAINING_MS),
    ):
        if not _has_b_kept_its_lock(probe, lock.key):
            pttl = int(probe.plain_client.pttl(lock.key))
            probe.add_to_story(f"A goes on, and so renews the lock of B: PTTL {pttl}")
            return probe.make_refusal("not-atomic-renewal", pttl=pttl, **command_numbers)
    return None


def _has_b_kept_its_lock(probe: Probe, key: str) -> bool:
    """Return whether buyer B still has the lock, with an unchanged ttl."""
    return (
        probe.plain_client.get(key) == b"b"
        and REMAINING_MS - LATENESS_MS < int(probe.plain_client.pttl(key)) <= REMAINING_MS
    )


def _check_working_holder(probe: Probe) -> Refusal | None:
    """Return a refusal if the lock expires while its holder works and one renewal is lost.

    `lock.PERIOD` is the participant's time between two renewals, as a fraction of the ttl. A value
    that is not a number, or that leads to more than MAX_RENEWALS, is refused, too. Raises Undecided
    if the machine is too slow.
    """
    lock = probe.make_lock(ttl=WORKING_TTL_SECONDS)
    if not isinstance(lock.PERIOD, Real):
        return probe.make_refusal("raises", error=f"PERIOD must be a number, not {lock.PERIOD!r}")
    work = _work_with_a_lost_renewal(probe, lock)
    if len(work.renewal_times) > MAX_RENEWALS:
        return probe.make_refusal("spins", times=len(work.renewal_times), period=lock.PERIOD)
    times = ", ".join(f"{renewed_at:.2f}" for renewed_at in work.renewal_times) or "never"
    probe.add_to_story(
        f"A works for {WORK_SECONDS:.1f} s, ttl {WORKING_TTL_SECONDS:g} s; renewals at {times}, "
        "the first is lost"
    )
    if work.kept_lock:
        return None
    return _explain_ended_lock(probe, lock, work)


class Work(NamedTuple):
    """The work of a holder whose lock a thread renews.

    renewal_times    seconds from the start of the work to each call of renew()
    returned_values  what the calls of renew() returned, without those that raised an error
    kept_lock        whether the lock existed at the end of the work
    """

    renewal_times: list[float]
    returned_values: list[object]
    kept_lock: bool


def _work_with_a_lost_renewal(probe: Probe, lock: Any) -> Work:
    """Let buyer A hold the lock for WORK_SECONDS, and let its first renewal fail.

    The command of this renewal does not reach Redis.
    """
    started_at = time.monotonic()
    renewal_times: list[float] = []
    returned_values: list[object] = []
    original_renew = lock.renew

    def renew_unreliably(token: str) -> bool:
        renewal_times.append(time.monotonic() - started_at)
        is_first_renewal = len(renewal_times) == 1
        lock.client.loses_next_command = is_first_renewal
        if len(renewal_times) > 2 * MAX_RENEWALS:
            return False  # ends the thread that renews the lock
        returned_values.append(original_renew(token))
        return bool(returned_values[-1])

    lock.renew = renew_unreliably
    lease = lock.acquire(0)
    time.sleep(WORK_SECONDS)
    kept_lock = probe.plain_client.get(lock.key) is not None
    lease.release()
    return Work(renewal_times, returned_values, kept_lock)


def _explain_ended_lock(probe: Probe, lock: Any, work: Work) -> Refusal:
    """Return the refusal for a lock that expired while its holder, buyer A, worked.

    Raises Undecided if the machine, and not the participant's code, was too slow.
    """
    renewal_times = work.renewal_times
    # The thread stops if renew() returns a false value. After a lost command, renew() should raise
    # an error instead.
    if len(renewal_times) == 1 and work.returned_values:
        return_value = repr(work.returned_values[0])
        probe.add_to_story(
            f"renew() returns {return_value}, so there is no further renewal; the lock ends"
        )
        return probe.make_refusal("error-is-lost", returned=return_value)
    if not renewal_times:
        if lock.PERIOD <= 1:  # the first renewal was due while A worked
            raise Undecided(
                f"the thread did not call renew() within {WORK_SECONDS:.1f} s: the machine is busy"
            )
        return probe.make_refusal(
            "never-renewed",
            period=lock.PERIOD,
            first=float(lock.PERIOD) * WORKING_TTL_SECONDS,
            ttl=WORKING_TTL_SECONDS,
        )
    period_seconds = renewal_times[0]
    # The n-th renewal is due n periods after the start. The first one measures the period.
    lateness_seconds = max(
        renewed_at - period_seconds * number for number, renewed_at in enumerate(renewal_times, 1)
    )
    if lateness_seconds > MAX_LATENESS_RATIO * WORKING_TTL_SECONDS:
        raise Undecided(
            f"the thread called renew() {lateness_seconds:.1f} s late: the machine is busy"
        )
    probe.add_to_story("the lock has ended while A was working")
    return probe.make_refusal("no-slack", period=round(period_seconds, 2), ttl=WORKING_TTL_SECONDS)
