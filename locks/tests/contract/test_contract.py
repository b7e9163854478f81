"""Tests of what each kind of lock guarantees: order, renewal, loss, fences, errors, metrics."""

import gc
import logging
import threading
import time
from typing import Any

import pytest

from ... import LockBackendError, LockLost, LockNotHeld, LockTimeout, LossReason, Metrics, Release
from ...sans_io.protocol import derive_keys
from ...testing.server import eventually
from ..waiting import is_free, run_in_thread, start_waiter
from .lock_factories import LockFactory


def test_waiters_are_served_in_order_of_arrival(factory: LockFactory) -> None:
    """Eight threads wait. Their fences show the order in which they got the lock."""
    lock = factory.make_lock("fifo")
    first_lease = lock.acquire(5)
    waiters = [start_waiter(lock) for _ in range(8)]
    first_lease.release()
    fences: list[Any] = []
    for waiter in waiters:
        lease = waiter.result(5)
        fences.append(lease.fence)
        assert lease.release() is Release.RELEASED
    assert fences == sorted(fences)
    assert is_free(lock)


def test_lock_has_one_holder_and_every_waiter_gets_it(factory: LockFactory) -> None:
    """Six threads share one lock object. Each holds it ten times, and adds 1 to a counter."""
    lock = factory.make_lock("counter")
    block_guard = threading.Lock()  # held in each `with` block, so a second holder cannot take it
    counter = 0
    tokens = set()

    def increment_ten_times() -> None:
        nonlocal counter
        for _ in range(10):
            with lock.hold(wait=20) as lease:
                tokens.add(lease.token)
                assert block_guard.acquire(blocking=False)
                counter_before = counter
                time.sleep(0.0005)  # a second holder would have time to enter the block
                assert lease.remaining() > 0
                counter = counter_before + 1
                block_guard.release()

    for future in [run_in_thread(increment_ten_times) for _ in range(6)]:
        future.result(30)
    assert counter == 6 * 10
    assert len(tokens) == 6 * 10  # each acquisition has its own token
    assert is_free(lock)


@pytest.mark.parametrize("wait", [0.0, 0.001, 0.15])
def test_wait_ends_with_a_timeout_on_time(factory: LockFactory, wait: float) -> None:
    """A waiter that gave up is not in the queue, and the lock can be acquired later."""
    lock = factory.make_lock("short")
    with lock.hold(wait=5):
        started = time.monotonic()
        with pytest.raises(LockTimeout):
            lock.acquire(wait)
        assert wait <= time.monotonic() - started < wait + 0.5
        assert lock.inspect().waiters == ()
        assert lock.try_acquire() is None
    lease = lock.try_acquire()
    assert lease is not None
    lease.release()


def test_lease_is_renewed_until_its_release_or_max_hold(factory: LockFactory) -> None:
    """One lease is held for more than two ttls. Another one is lost at its max_hold of 0.6 s."""
    lock = factory.make_lock("renewed", ttl=0.6)
    with lock.hold(wait=5) as lease:
        bounded_lease = factory.make_lock("bounded", ttl=0.3, max_hold=0.6).acquire(1)
        end = time.monotonic() + 1.5  # longer than two ttls of 0.6 s
        while time.monotonic() < end:
            lease.check()
            time.sleep(0.05)
        assert bounded_lease.loss is LossReason.MAX_HOLD
        assert bounded_lease.held_seconds > 0.5
        with pytest.raises(LockLost):
            bounded_lease.check()
    assert lease.outcome is Release.RELEASED


@pytest.mark.parametrize("loss", [LossReason.GONE, LossReason.TAKEN])
def test_deleted_or_stolen_lock_is_lost_soon(factory: LockFactory, loss: LossReason) -> None:
    """The holder notices the loss, and its release changes nothing on the server."""
    reported_losses: list[LossReason] = []
    lock = factory.make_lock(
        "taken", ttl=0.9, on_lost=lambda _, reason: reported_losses.append(reason)
    )
    lease = lock.acquire(1)
    key = derive_keys("taken")[0]
    lost_at = time.monotonic()
    if loss is LossReason.GONE:
        factory.admin_client.delete(key)
    else:
        factory.admin_client.set(key, "another", px=5000)
    eventually(lambda: reported_losses == [loss])
    # The next renewal notices the loss, within a third of the ttl: 0.3 s, and tolerance.
    assert time.monotonic() - lost_at < 0.5
    assert lease.lost
    assert lease.release() is Release.EXPIRED
    if loss is LossReason.TAKEN:
        assert factory.admin_client.get(key) == b"another"


def test_released_lease_cannot_be_used(factory: LockFactory) -> None:
    """A second release and a check raise LockNotHeld."""
    lease = factory.make_lock("used").acquire(1)
    lease.release()
    for misuse in (lease.release, lease.check):
        with pytest.raises(LockNotHeld, match="released"):
            misuse()
    assert lease.remaining() == 0
    assert not lease.lost


def test_forgotten_lease_is_not_renewed(
    factory: LockFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """The program drops its last reference to the lease, and never releases it."""
    lock = factory.make_lock("forgotten", ttl=0.3)

    def is_reported() -> bool:
        gc.collect()  # at the first collection a thread may still have referred to the lease
        return "dropped without release" in caplog.text

    with caplog.at_level(logging.WARNING):
        lock.acquire(1)
        gc.collect()
        started = time.monotonic()
        with lock.hold(wait=2):
            assert time.monotonic() - started < 0.7  # the ttl of 0.3 s, and tolerance
        eventually(is_reported)


def test_block_exit_releases_and_hides_no_exception(factory: LockFactory) -> None:
    """The end of a block releases the lock, and the caller gets the exception of the block.

    If the lock was lost, this exception has a note about the loss.
    """
    lock = factory.make_lock("raising")
    lock_key = derive_keys("raising")[0]
    with pytest.raises(ZeroDivisionError), lock.hold(wait=1):
        raise ZeroDivisionError
    assert is_free(lock)
    # The release notices the loss.
    with pytest.raises(ZeroDivisionError) as caught, lock.hold(wait=1):  # noqa: PT012
        factory.admin_client.delete(lock_key)
        raise ZeroDivisionError
    assert "lost in this block: expired" in caught.value.__notes__[0]
    # The loss was noticed before the release.
    with pytest.raises(ZeroDivisionError) as caught, lock.hold(wait=1) as lease:  # noqa: PT012
        factory.admin_client.delete(lock_key)
        lease.mark_lost(LossReason.GONE)
        raise ZeroDivisionError
    assert "lost in this block: gone" in caught.value.__notes__[0]
    # If the block raises nothing, the release raises nothing either: the work of the block is done,
    # and an exception could not undo it.
    with lock.hold(wait=1) as lease:
        factory.admin_client.delete(lock_key)
    assert lease.outcome is Release.EXPIRED


def test_fences_rise_across_release_hand_over_and_data_loss(factory: LockFactory) -> None:
    """Each fence is higher than all before, also after the server has lost the last fence.

    (Here a hand-over is a release that gives the lock to a waiter, not a call of hand_over().)
    """
    lock = factory.make_lock("fences")
    fences = []
    for round_number in range(3):
        lease = lock.acquire(1)
        next_waiter = start_waiter(lock)
        lease.release()
        fences += [lease.fence, next_waiter.result(5).fence]
        next_waiter.result().release()
        if round_number == 1:
            factory.admin_client.flushall()  # the server loses the last fence
    assert fences == sorted(set(fences))


def test_forced_release_gives_the_lock_to_the_next_waiter(factory: LockFactory) -> None:
    """force_release() takes the lock from its holder, who notices the loss."""
    lock = factory.make_lock("forced", ttl=0.9)
    lease = lock.acquire(1)
    next_waiter = start_waiter(lock)
    assert lock.force_release()
    next_lease = next_waiter.result(1)
    eventually(lambda: lease.loss is LossReason.TAKEN)
    assert next_lease.fence > lease.fence
    assert lease.release() is Release.EXPIRED
    assert next_lease.release() is Release.RELEASED
    assert not lock.force_release()


def test_forgotten_scripts_are_sent_again(factory: LockFactory) -> None:
    """The server forgets the scripts before the acquisition, a renewal and the release."""
    lock = factory.make_lock("forgotten", ttl=0.6)
    factory.admin_client.script_flush()
    lease = lock.acquire(1)
    factory.admin_client.script_flush()
    first_deadline = lease.deadline
    eventually(lambda: lease.deadline > first_deadline)  # renewed
    factory.admin_client.script_flush()
    assert lease.release() is Release.RELEASED


def test_waiters_poll_after_their_subscription_broke(factory: LockFactory) -> None:
    """The subscription of the waiters is cut. Each waiter then polls, and sends its new channel.

    So the next release wakes the waiter at once.
    """
    lock = factory.make_lock("cut")
    with lock.hold(wait=1) as lease:
        waiters = [start_waiter(lock) for _ in range(3)]
        _, _, waiters_key, _ = derive_keys("cut")
        # Each waiter has an entry, which contains its channel.
        entries_before = factory.admin_client.hvals(waiters_key)
        factory.cut_subscriptions()

        def have_all_polled() -> bool:
            # A waiter's poll replaces its entry.
            entries = factory.admin_client.hvals(waiters_key)
            return len(entries) == 3 and not set(entries) & set(entries_before)

        eventually(have_all_polled)
        released_at = time.monotonic()
        lease.release()
        for waiter in waiters:
            waiter.result(5).release()
        assert time.monotonic() - released_at < 1


def test_foreign_key_is_an_error_and_stays_unchanged(factory: LockFactory) -> None:
    """Another program has stored a hash under the lock's key."""
    key = derive_keys("other")[0]
    factory.admin_client.hset(key, "field", "value")
    with pytest.raises(LockBackendError, match="WRONGTYPE"):
        factory.make_lock("other").acquire(1)
    assert factory.admin_client.hgetall(key) == {b"field": b"value"}
    factory.admin_client.delete(key)


def test_metrics_hooks_get_the_outcomes(factory: LockFactory) -> None:
    """The metrics object records each call of a hook. An exception of a hook has no effect."""

    class RecordingMetrics(Metrics):
        def __init__(self) -> None:
            self.events: list[Any] = []

        def waited(self, name: str, seconds: float, acquired: bool) -> None:
            self.events.append(("waited", acquired))

        def held(self, name: str, seconds: float, outcome: Release) -> None:
            self.events.append(("held", outcome))

        def renewed(self, name: str, seconds: float) -> None:
            self.events.append("renewed")

        def lost(self, name: str, loss: LossReason) -> None:
            self.events.append(("lost", loss))
            raise ZeroDivisionError  # the lock only logs it

    metrics = RecordingMetrics()
    lock = factory.make_lock("counted", ttl=0.6, metrics=metrics)
    with lock.hold(wait=1):
        assert lock.try_acquire() is None
        eventually(lambda: "renewed" in metrics.events)
    events_except_renewals = [event for event in metrics.events if event != "renewed"]
    assert events_except_renewals == [
        ("waited", True),
        ("waited", False),  # try_acquire()
        ("held", Release.RELEASED),
    ]
    with lock.hold(wait=1):
        factory.admin_client.delete(derive_keys("counted")[0])
        eventually(lambda: ("lost", LossReason.GONE) in metrics.events)
    assert metrics.events[-1] == ("held", Release.EXPIRED)


@pytest.mark.parametrize("name", ["a{}b", "}", "{", "{x}y", "%7B", "a b\n", "größe 蘋果" * 30])
def test_any_name_can_be_locked(factory: LockFactory, name: str) -> None:
    """The names contain characters that are escaped in keys, or not allowed in channels."""
    lock = factory.make_lock(name)
    with lock.hold(wait=1):
        waiter = start_waiter(lock)
    assert waiter.result(5).release() is Release.RELEASED
    assert is_free(lock)
