"""Signal handlers that raise, as that of Ctrl-C does, at any moment."""

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

#: Uses locks for {seconds}, interrupted again and again. Prints the number of interrupts and the
#: number of mailboxes that are left.
INTERRUPT_PROGRAM = """
import signal, sys, time
import redis
from {locks} import LockError, RedisLock

class Interrupted(Exception):
    pass

def interrupt(*_):
    raise Interrupted

def contend(lock):
    # In a function, because Python 3.13 does not catch an exception that a handler raises in a
    # loop's condition at module level.
    armed = time.monotonic()
    while time.monotonic() < armed + 0.1:  # a destructor may have swallowed the exception
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
    """The locks pack their commands themselves.

    hiredis 3.5 crashes the interpreter when a signal handler raises while it packs an int.
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
    # The client of this test sent SCRIPT FLUSH, so hiredis packs the commands of redis-py.
    assert [command for command in commands if "SCRIPT" in command]
    assert not [command for command in commands if "EVAL" in command]


def test_packed_command_matches_redis_py(client: redis.Redis) -> None:
    """The command has parts of every type: ASCII and not, empty, and a line break."""
    parts: list[Arg] = ["EVALSHA", "f" * 40, 2, b"lock:{\xc3\xa4}", "ä b", -1, b"", b"\r\n"]
    connection = client.connection_pool.make_connection()
    assert pack_command(*parts) == b"".join(connection.pack_command(*parts))


def test_many_interrupts_crash_nothing_and_leave_nothing(server: Server) -> None:
    """A signal handler raises at many moments of acquire and release. No waiter stays behind."""
    program = INTERRUPT_PROGRAM.format(locks=LOCKS_PACKAGE, port=server.port, seconds=3)
    last_line = run_program(sys.executable, "-c", program).splitlines()[-1]
    interrupts, mailboxes_left = map(int, last_line.split())
    assert interrupts > 10
    assert mailboxes_left == 0


def test_interrupt_after_making_the_mailbox_leaves_none(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiter has a mailbox for its wake-up. It is removed if the waiter is interrupted."""
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
    """A connection on which a signal arrives once, before a reply is read or a command is sent."""

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
    """It raises before a reply is read, or before a command is sent. No lock stays taken."""
    pool = redis.ConnectionPool(connection_class=InterruptedConnection, port=server.port)
    lock = RedisLock(redis.Redis.from_pool(pool), "limit", ttl=30)
    lock.acquire(1).release()
    InterruptedConnection.interrupts_reading = True
    with pytest.raises(SoftTimeLimit):
        lock.acquire(1)
    assert not RedisLock(client, "limit", ttl=1).locked()
    lease = lock.acquire(1)
    InterruptedConnection.interrupts_reading = True
    with pytest.raises(SoftTimeLimit):
        lease.release()
    assert lease.release() in (Release.RELEASED, Release.UNKNOWN)
    assert not lock.locked()
    with pytest.raises(SoftTimeLimit), lock.hold(1):
        InterruptedConnection.interrupts_sending = True
    with RedisLock(client, "limit", ttl=1).hold(5):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftTimeLimit])
def test_interrupt_before_a_release_leaves_no_renewed_lease(
    lock: RedisLock, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The interrupt comes at the end of the block, just before the release."""
    begin_release = Lease._begin_release
    interrupts = [error()]

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
    """Return a replacement of a method that raises KeyboardInterrupt once.

    It raises after its call of the method, or instead of that call.
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
def test_interrupted_loop_gives_no_command_the_reply_of_another(
    server: Server, monkeypatch: pytest.MonkeyPatch, method: str, calls_first: bool
) -> None:
    """After Ctrl-C the loop runs on, as in a notebook. Each command still gets its own reply."""
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


def test_signal_handler_uses_a_lease_that_its_thread_is_using(lock: RedisLock) -> None:
    """The mutexes are reentrant, so the handler does not wait for its own thread forever."""
    lease = lock.acquire(1)

    def use_lease_in_handler() -> None:
        with lease._mutex, get_or_create(callbacks, "_mutex", threading.RLock):
            lease.extend(40)
            callbacks.call(lambda: None)
            lease.mark_lost(LossReason.EXPIRED)
            lease.release()

    run_in_thread(use_lease_in_handler).result(5)


def mark_lost_in_handler(lease: Lease, number: int) -> bool:
    """Mark a lease as lost. At one bytecode of mark_lost(), do it once more, as a handler may.

    Args:
        lease: The lease.
        number: The number of the bytecode, from 0.

    Returns:
        Whether mark_lost() has this many bytecodes.
    """
    bytecodes_left = number

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


def test_loss_that_a_signal_handler_notices_too_is_announced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handler runs at the first bytecode of mark_lost(), then at the second, and so on."""
    announced_leases: list[Lease] = []
    monkeypatch.setattr(Lease, "_announce_loss", lambda lease, _: announced_leases.append(lease))
    leases: list[Lease] = []
    has_bytecode = True
    while has_bytecode:
        lease = Lease(name="x", token="t", deadline=0.0, release=lambda _: Release.RELEASED)
        leases.append(lease)
        number = len(leases) - 1
        has_bytecode = run_in_thread(partial(mark_lost_in_handler, lease, number)).result(5)
    assert len(leases) > 10
    assert announced_leases == leases
