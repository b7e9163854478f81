"""Tests of OneFileLock with a late or silent server, interrupts, and garbage collection."""

import gc
import logging
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import one_file
from ..one_file import Lease, LockTimeout, OneFileLock
from ..testing.server import LoopbackProxy, Server, eventually
from .waiting import run_in_thread


def make_recommended_client(port: int) -> redis.Redis:
    """Return the client that the docstring of one_file.py recommends."""
    return redis.Redis(port=port, socket_timeout=1, retry=Retry(NoBackoff(), 1))


def test_late_grant_is_verified_at_the_server(own_server: Server) -> None:
    """The server's reply to an acquisition comes later than the ttl.

    The lock is then acquired again, so that the lease is valid and is renewed.
    """
    client = own_server.make_client(socket_timeout=5)
    lock = OneFileLock(client, "x", ttl=0.5)
    with lock.hold(wait=1):
        pass  # the server has the scripts from here on
    own_server.signal(signal.SIGSTOP)
    timer = threading.Timer(0.8, own_server.signal, [signal.SIGCONT])
    timer.start()
    with lock.hold(wait=1) as lease:
        lease.check()
        time.sleep(0.8)  # longer than the ttl, so it is renewed
        lease.check()
    assert lease.outcome == "released"
    timer.join()


class LateClient:
    """A client of a server that grants each lock, but replies 0.02 s later.

    The ttl of the lock is 0.01 s, so each grant has expired when its reply arrives.

    Attributes:
        released_tokens: The tokens that OneFileLock has released.
    """

    def __init__(self) -> None:
        self.released_tokens: list[str] = []

    def execute_command(self) -> None: ...  # OneFileLock checks that it is no coroutine function

    def register_script(self, text: str) -> Any:
        """Return a function in place of each of OneFileLock's two scripts."""
        return self._grant_late if text == one_file.ACQUIRE else self._release

    def _grant_late(self, keys: list[bytes], args: list[Any]) -> int:
        time.sleep(0.02)
        return 1  # the fence

    def _release(self, keys: list[bytes], args: list[Any]) -> int:
        self.released_tokens.append(args[0])
        return 1  # the lock was ours


def test_wait_ends_although_each_grant_is_late() -> None:
    """Each grant has expired when its reply arrives, so hold() tries until its wait ends.

    Then hold() releases the lock of the last grant, which may still be valid at the server.
    """
    client = LateClient()
    lock = OneFileLock(client, "x", ttl=0.01)
    for wait in (0, 0.05):
        with pytest.raises(LockTimeout):
            run_in_thread(lock.hold(wait=wait).__enter__).result(5)
    eventually(lambda: len(client.released_tokens) == 2)  # one for each of the two waits


def test_silent_server_blocks_for_the_client_timeout_only(own_server: Server) -> None:
    """The caller waits for one timeout of the client. The cleanup runs in another thread.

    The cleanup releases the lock, which the silent server may have granted.
    """
    client = own_server.make_client(socket_timeout=0.5, retry=Retry(NoBackoff(), 0))
    lock = OneFileLock(client, "x", ttl=3)
    with lock.hold(wait=1):
        pass  # the server has the scripts from here on
    own_server.signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(redis.TimeoutError), lock.hold(wait=1):
        pass
    # One timeout of 0.5 s; a blocking cleanup would add another.
    assert time.monotonic() - started < 0.9
    own_server.signal(signal.SIGCONT)
    eventually(lambda: not client.exists("lock:{x}"))


def test_recommended_client_bounds_the_wait(own_server: Server) -> None:
    """The wait at a silent server ends after the client's two attempts."""
    client = make_recommended_client(own_server.port)
    lock = OneFileLock(client, "x", ttl=6)
    with lock.hold(wait=1):
        pass  # the server has the scripts from here on
    own_server.signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(redis.TimeoutError), lock.hold(wait=1):
        pass
    # Two attempts of 1 s, and tolerance. redis-py's default client takes 55 s.
    assert time.monotonic() - started < 4
    own_server.signal(signal.SIGCONT)
    client.close()


def test_lease_survives_a_silently_dead_connection(proxy: LoopbackProxy) -> None:
    """All connections are open, but dead. A renewal fails after a socket_timeout of ttl / 6.

    The client's retry uses a new connection, and renews the lease in time.
    """
    client = redis.Redis(port=proxy.port, socket_timeout=0.5, retry=Retry(NoBackoff(), 1))
    with OneFileLock(client, "x", ttl=3).hold(wait=1) as lease:
        proxy.freeze_connections()
        trusted_until = lease._trusted_until
        eventually(lambda: lease._trusted_until != trusted_until, within=10)
        lease.check()
    assert lease.outcome == "released"


def test_loss_is_logged(client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    """The key of the lock is deleted in the block. The release logs a warning."""
    with caplog.at_level(logging.WARNING), OneFileLock(client, "x", ttl=10).hold(wait=1) as lease:
        client.delete("lock:{x}")
    assert lease.outcome == "expired"
    assert "x: the lease was lost before its release" in caplog.text


def test_timeout_causes_no_cleanup(client: redis.Redis) -> None:
    """A try that fails sends a single command. The lock was not granted, so no release is sent."""
    lock = OneFileLock(client, "x", ttl=10)
    with lock.hold(wait=1):
        calls_before = count_script_calls(client)
        with pytest.raises(LockTimeout), lock.hold(wait=0):
            pass
        assert count_script_calls(client) - calls_before == 1


def count_script_calls(client: redis.Redis) -> int:
    """Return how many scripts the server has run."""
    statistics: dict[str, Any] = client.info("commandstats")
    return int(statistics.get("cmdstat_evalsha", {"calls": 0})["calls"])


class Interrupt(BaseException):
    """An exception in place of one that a signal handler raises, such as KeyboardInterrupt."""


class Interrupter:
    """A trace function for sys.settrace() that raises Interrupt once, in the code of one_file.py.

    Attributes:
        bytecodes_left: The number of bytecodes that run before the interrupt.
        has_fired: Whether Interrupt was raised.
    """

    def __init__(self, bytecodes_before: int) -> None:
        self.bytecodes_left = bytecodes_before
        self.has_fired = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Trace one event of the interpreter. The returned function traces the next one."""
        if frame.f_code.co_filename != one_file.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.bytecodes_left -= 1
            if self.bytecodes_left < 0 and not self.has_fired:
                self.has_fired = True
                sys.settrace(None)
                raise Interrupt
        return self


def hold_and_interrupt(lock: OneFileLock, bytecodes_before: int, leases: list[Lease]) -> bool:
    """Acquire and release the lock, and raise an Interrupt meanwhile.

    Args:
        lock: The lock.
        bytecodes_before: The number of bytecodes of one_file.py that run before the Interrupt.
        leases: The list to which the lease is appended.

    Returns:
        Whether the Interrupt was raised. If it was not, one_file.py ran fewer bytecodes than that.
    """
    interrupter = Interrupter(bytecodes_before)
    try:
        block = lock.hold(wait=1)
        sys.settrace(interrupter)
        with block as lease:
            del block  # so that only the `with` statement refers to the object
            leases.append(lease)
    except Interrupt:
        pass  # no `as error`: its traceback would keep the frames and their objects alive
    finally:
        sys.settrace(None)
    return interrupter.has_fired


def test_interrupt_at_any_bytecode_leaves_no_lock_renewed(client: redis.Redis) -> None:
    """A lock whose block was interrupted is not renewed, even if the program keeps the lease.

    The test runs with an interrupt at the first bytecode of one_file.py, at the second, and so on.
    The ttl is long enough for a busy machine, because no lease may be lost in this test. A loss
    ends the renewing thread. So it would hide a mistake by which the thread renews a lock forever.
    """
    leases: list[Lease] = []
    bytecodes_before = 0
    while hold_and_interrupt(
        OneFileLock(client, f"interrupted {bytecodes_before}", ttl=2), bytecodes_before, leases
    ):
        bytecodes_before += 1
    assert bytecodes_before > 100  # otherwise the trace function has missed most bytecodes
    gc.collect()
    eventually(lambda: not client.keys("lock:{interrupted*}"), within=10)
    eventually(lambda: not list_renewing_threads(), within=10)


def list_renewing_threads() -> list[threading.Thread]:
    """Return the threads in which one_file.py renews leases."""
    return [thread for thread in threading.enumerate() if thread.name == "locks.one_file"]


def test_garbage_collection_does_not_end_renewals(client: redis.Redis) -> None:
    """A lease is renewed in its block, although the garbage collector runs.

    The renewals would end if the object that hold() returned was garbage-collected. In the block
    only the `with` statement refers to this object.
    """

    def hold() -> None:
        with OneFileLock(client, "x", ttl=2).hold(wait=1) as lease:
            for _ in range(3):
                gc.collect()
                time.sleep(1)  # three times 1 s is longer than the ttl
                lease.check()

    gc.collect()
    gc.freeze()  # collecting the whole suite's objects would delay the renewing thread
    run_in_thread(hold).result(20)
