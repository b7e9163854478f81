"""Tests of signal handlers that raise an exception at any moment, as for Ctrl-C."""

import asyncio
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
import redis
import redis.asyncio

from .. import AsyncRedisLock, Lease, LossReason, RedisLock, Release
from ..hooks import callbacks
from ..lazy import get_or_create
from ..lease import BaseLease
from ..sans_io.protocol import Arg, pack_command
from ..testing.server import Server
from .waiting import LOCKS_PACKAGE, hold_lock, run_in_thread, run_program

#: Uses locks for {seconds}. A signal handler interrupts each use with an exception. Prints the
#: number of the interrupts and the number of mailboxes that are left.
INTERRUPT_PROGRAM = """
import signal, sys, time
import redis
from {locks} import LockError, RedisLock

class Interrupted(Exception):
    pass

def interrupt(*_):
    raise Interrupted

# This is a function, because Python 3.13 does not catch an exception that a handler raises in the
# condition of a loop at module level.
def contend(lock):
    # Stop after 0.1 s, because the exception is lost if it is raised in a destructor.
    started = time.monotonic()
    while time.monotonic() < started + 0.1:
        try:
            with lock.hold(wait=0.05):
                pass
        except LockError:
            pass

signal.signal(signal.SIGALRM, interrupt)
client = redis.Redis(port={port})
end, interrupts = time.monotonic() + {seconds}, 0
while time.monotonic() < end:
    lock = RedisLock(client, f"interrupted {{interrupts}}", ttl=0.2)
    try:
        # A different moment each time, 0.2 to 1.2 ms from now.
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + interrupts % 97 * 0.00001)
        contend(lock)
    except Interrupted:
        interrupts += 1
    except UnboundLocalError as error:
        # redis-py 5.0 reads a local variable in a `finally` that the interrupt left unset.
        if not isinstance(error.__context__, Interrupted):
            raise
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(interrupts, len(lock._wakeups.waiters.mailboxes))
"""


def test_hiredis_packs_no_command_of_a_lock(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The locks encode their commands without hiredis.

    hiredis 3.5 crashes the interpreter if a signal handler raises while hiredis encodes an int.
    """
    hiredis = pytest.importorskip("hiredis")
    commands: list[str] = []
    pack = hiredis.pack_command

    def pack_and_record(args: Any) -> Any:
        commands.append(str(args[0]))
        return pack(args)

    monkeypatch.setattr(hiredis, "pack_command", pack_and_record)
    lock = RedisLock(client, "packed", ttl=0.3)
    client.script_flush()
    with hold_lock(lock) as lease:
        assert lock.try_acquire() is None
        assert not lease.lost_event.wait(0.3)
    # hiredis encodes the commands of redis-py, such as the SCRIPT FLUSH above.
    assert [command for command in commands if "SCRIPT" in command]
    assert not [command for command in commands if "EVAL" in command]


def test_packed_command_matches_redis_py(client: redis.Redis) -> None:
    """The parts have all types: strings, bytes and integers, also empty or not ASCII."""
    parts: list[Arg] = ["EVALSHA", "f" * 40, 2, b"lock:{\xc3\xa4}", "ä b", -1, b"", b"\r\n"]
    connection = client.connection_pool.make_connection()
    assert pack_command(*parts) == b"".join(connection.pack_command(*parts))


def test_many_interrupts_leave_no_waiter(server: Server) -> None:
    """A signal handler raises exceptions at many moments of acquisitions and releases.

    The program does not crash. Each waiter removes its mailbox, to which its wake-up is sent.
    """
    program = INTERRUPT_PROGRAM.format(locks=LOCKS_PACKAGE, port=server.port, seconds=3)
    last_line = run_program(sys.executable, "-c", program).splitlines()[-1]
    interrupts, mailboxes_left = map(int, last_line.split())
    assert interrupts > 10
    assert mailboxes_left == 0


def test_interrupted_waiter_leaves_no_mailbox(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiter is interrupted just after its mailbox, which receives its wake-up, was made."""
    waiters_class = type(lock._wakeups.waiters)
    make_mailbox = waiters_class.join

    def make_mailbox_and_interrupt(*args: Any) -> Any:
        make_mailbox(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(waiters_class, "join", make_mailbox_and_interrupt)
    with hold_lock(lock), pytest.raises(KeyboardInterrupt):
        lock.acquire(5)
    assert not lock._wakeups.waiters.mailboxes


class SoftTimeLimit(Exception):
    """An exception that a task queue's signal handler raises when a task takes too long."""


class InterruptedConnection(redis.Connection):
    """A connection on which a signal handler raises SoftTimeLimit once.

    Attributes:
        interrupts_reading: Whether it raises before the next reply is read.
        interrupts_sending: Whether it raises before the next command is sent.
    """

    interrupts_reading = False
    interrupts_sending = False

    def send_packed_command(self, *args: Any, **kwargs: Any) -> Any:
        if InterruptedConnection.interrupts_sending:
            InterruptedConnection.interrupts_sending = False
            raise SoftTimeLimit
        return super().send_packed_command(*args, **kwargs)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        if InterruptedConnection.interrupts_reading:
            InterruptedConnection.interrupts_reading = False
            raise SoftTimeLimit
        return super().read_response(*args, **kwargs)


def test_exception_of_a_signal_handler_reaches_the_caller(
    server: Server, client: redis.Redis
) -> None:
    """A signal handler raises an exception before a reply is read, or before a command is sent.

    The caller gets the exception, and the lock is free afterwards.
    """
    pool = redis.ConnectionPool(connection_class=InterruptedConnection, port=server.port)
    lock = RedisLock(redis.Redis.from_pool(pool), "interrupted", ttl=30)
    lock.acquire(1).release()
    InterruptedConnection.interrupts_reading = True
    with pytest.raises(SoftTimeLimit):
        lock.acquire(1)
    assert not RedisLock(client, "interrupted", ttl=1).locked()
    lease = lock.acquire(1)
    InterruptedConnection.interrupts_reading = True
    with pytest.raises(SoftTimeLimit):
        lease.release()
    # UNKNOWN if the interrupted release, whose reply was not read, has already freed the lock.
    assert lease.release() in (Release.RELEASED, Release.UNKNOWN)
    assert not lock.locked()
    with pytest.raises(SoftTimeLimit), lock.hold(1):
        InterruptedConnection.interrupts_sending = True
    with RedisLock(client, "interrupted", ttl=1).hold(5):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftTimeLimit])
def test_interrupt_before_a_release_leaves_no_renewed_lease(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """A signal handler raises an exception at the end of the block, just before the release.

    The block releases the lock nevertheless.
    """
    begin_release = Lease._begin_release
    interrupts = [error()]  # raised once

    def interrupt_once(lease: Lease) -> None:
        if interrupts:
            raise interrupts.pop()
        begin_release(lease)

    monkeypatch.setattr(Lease, "_begin_release", interrupt_once)
    with pytest.raises(error), lock.hold(1) as lease:
        pass
    assert lease.outcome is Release.RELEASED
    assert not lock.locked()


def make_interrupted_method(
    method: Callable[..., None], *, calls_first: bool
) -> Callable[..., None]:
    """Return a function that replaces a method, and raises KeyboardInterrupt at its first call.

    Args:
        method: The method.
        calls_first: True: the first call calls the method before it raises. False: it only raises.
    """
    has_interrupted = False

    def call_or_interrupt(*args: Any) -> None:
        nonlocal has_interrupted
        if has_interrupted or calls_first:
            method(*args)
        if not has_interrupted:
            has_interrupted = True
            raise KeyboardInterrupt

    return call_or_interrupt


@pytest.mark.parametrize(("method", "calls_first"), [("write", False), ("_on_reply", True)])
def test_each_command_gets_its_own_reply_after_ctrl_c(
    server: Server, monkeypatch: pytest.MonkeyPatch, method: str, calls_first: bool
) -> None:
    """Ctrl-C interrupts an event loop while it sends a command, or when it has read a reply.

    The loop then runs on, as in a notebook. No later command gets the reply to an earlier command.

    Ctrl-C is raised in this `method` of the link. With `calls_first` the method is called first.
    """
    loop = asyncio.new_event_loop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    client = redis.asyncio.Redis(port=server.port)
    free_lock = AsyncRedisLock(client, "free", ttl=10)
    taken_lock = AsyncRedisLock(client, "taken", ttl=10)
    lease = loop.run_until_complete(taken_lock.acquire(1))
    resources: Any = loop.run_until_complete(taken_lock._get_resources())
    link = resources.connections.current_connection._link
    interrupt = make_interrupted_method(getattr(link, method), calls_first=calls_first)
    monkeypatch.setattr(link, method, interrupt)
    task = loop.create_task(free_lock.locked())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    assert loop.run_until_complete(taken_lock.locked())
    assert not loop.run_until_complete(free_lock.locked())
    loop.run_until_complete(asyncio.wait({task}))
    task.exception()  # otherwise asyncio reports that the exception was never retrieved
    loop.run_until_complete(lease.release())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert errors == []


def test_signal_handler_can_use_a_lease_in_use(lock: RedisLock) -> None:
    """A signal handler interrupts a thread that holds the lease's mutexes, and uses the lease.

    The mutexes are reentrant, so the handler does not wait forever.
    """
    lease = lock.acquire(1)

    def use_lease_in_handler() -> None:
        with lease._mutex, get_or_create(callbacks, "_mutex", threading.RLock):
            lease.extend(40)
            callbacks.call(lambda: None)
            lease.mark_lost(LossReason.EXPIRED)
            lease.release()

    run_in_thread(use_lease_in_handler).result(5)


def mark_lost_and_interrupt(lease: Lease, bytecodes_before: int) -> bool:
    """Mark a lease as lost, and meanwhile mark it a second time, as a signal handler may.

    Args:
        lease: The lease.
        bytecodes_before: The number of bytecodes of mark_lost() that run before the second call.

    Returns:
        Whether there was a second call. If not, mark_lost() runs fewer bytecodes than that.
    """
    bytecodes_left = bytecodes_before

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal bytecodes_left
        if frame.f_code is not BaseLease.mark_lost.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            bytecodes_left -= 1
            if bytecodes_left == -1:
                lease.mark_lost(LossReason.EXPIRED)
        return trace

    earlier_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        lease.mark_lost(LossReason.EXPIRED)
    finally:
        sys.settrace(earlier_trace)
    return bytecodes_left < 0


def test_loss_noticed_twice_is_announced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal handler interrupts mark_lost(), and calls it for the same lease.

    It does so for one lease before the first bytecode of mark_lost(), for another lease before the
    second bytecode, and so on.
    """
    announced_leases: list[Lease] = []
    monkeypatch.setattr(Lease, "_announce_loss", lambda lease, _: announced_leases.append(lease))
    leases: list[Lease] = []
    was_interrupted = True
    while was_interrupted:
        lease = Lease(name="x", token="t", deadline=0.0, release=lambda _: Release.RELEASED)
        leases.append(lease)
        mark = partial(mark_lost_and_interrupt, lease, bytecodes_before=len(leases) - 1)
        was_interrupted = run_in_thread(mark).result(5)
    assert len(leases) > 10  # mark_lost() has more bytecodes than that
    assert announced_leases == leases
