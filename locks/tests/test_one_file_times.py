"""OneFileLock with a late, silent or dead server, interrupts, and garbage collection."""

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
    """The server is silent for longer than the ttl. The lease is valid and renewed nevertheless."""
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
    """A client that grants a lock of a ttl of 0.01 s, but replies only after 0.02 s.

    Attributes:
        released_tokens: The tokens that were released.
    """

    def __init__(self) -> None:
        self.released_tokens: list[str] = []

    def execute_command(self) -> None: ...

    def register_script(self, text: str) -> Any:
        return self._grant_late if text == one_file.ACQUIRE else self._release

    def _grant_late(self, keys: list[bytes], args: list[Any]) -> int:
        time.sleep(0.02)
        return 1

    def _release(self, keys: list[bytes], args: list[Any]) -> int:
        self.released_tokens.append(args[0])
        return 1


def test_wait_ends_although_each_grant_is_late() -> None:
    """The last grant is released, because the server may have executed it late."""
    client = LateClient()
    lock = OneFileLock(client, "x", ttl=0.01)
    for wait in (0, 0.05):
        with pytest.raises(LockTimeout):
            run_in_thread(lock.hold(wait=wait).__enter__).result(5)
    eventually(lambda: len(client.released_tokens) == 2)


def test_silent_server_blocks_for_the_client_timeout_only(own_server: Server) -> None:
    """An acquisition takes as long as the client's attempts. Its cleanup blocks no caller."""
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
    # Two attempts of 1 s, and slack; redis-py's default client takes 55 s.
    assert time.monotonic() - started < 4
    own_server.signal(signal.SIGCONT)
    client.close()


def test_lease_survives_a_silently_dead_connection(proxy: LoopbackProxy) -> None:
    """A renewal waits in vain for ttl / 6, the socket_timeout. That leaves time for another one."""
    client = redis.Redis(port=proxy.port, socket_timeout=0.5, retry=Retry(NoBackoff(), 1))
    with OneFileLock(client, "x", ttl=3).hold(wait=1) as lease:
        proxy.freeze_connections()
        trusted_until = lease._trusted_until
        eventually(lambda: lease._trusted_until != trusted_until, within=10)
        lease.check()
    assert lease.outcome == "released"


def test_loss_is_logged(client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), OneFileLock(client, "x", ttl=10).hold(wait=1) as lease:
        client.delete("lock:{x}")
    assert lease.outcome == "expired"
    assert "x: the lease was lost before its release" in caplog.text


def test_timeout_causes_no_cleanup(client: redis.Redis) -> None:
    """A cleanup would cost a thread and a command."""
    lock = OneFileLock(client, "x", ttl=10)
    with lock.hold(wait=1):
        calls_before = count_script_calls(client)
        with pytest.raises(LockTimeout), lock.hold(wait=0):
            pass
        assert count_script_calls(client) - calls_before == 1


def count_script_calls(client: redis.Redis) -> int:
    statistics: dict[str, Any] = client.info("commandstats")
    return int(statistics.get("cmdstat_evalsha", {"calls": 0})["calls"])


class Interrupt(BaseException):
    """An exception as a signal handler raises it."""


class Interrupter:
    """A trace function that raises Interrupt at one bytecode of one_file.py, counted from 0."""

    def __init__(self, number: int) -> None:
        self.remaining = number
        self.has_fired = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != one_file.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.remaining -= 1
            if self.remaining < 0 and not self.has_fired:
                self.has_fired = True
                sys.settrace(None)
                raise Interrupt
        return self


def hold_interrupted(lock: OneFileLock, number: int, leases: list[Lease]) -> bool:
    """Hold the lock, interrupted at one bytecode of one_file.py, and append its lease to `leases`.

    Args:
        lock: The lock.
        number: The number of the bytecode, from 0.
        leases: The list of leases.

    Returns:
        Whether the use of the lock had this many bytecodes, so that it was interrupted.
    """
    interrupter = Interrupter(number)
    try:
        block = lock.hold(wait=1)
        sys.settrace(interrupter)
        with block as lease:
            del block  # so that only the with statement refers to it
            leases.append(lease)
    except Interrupt:
        pass  # without a reference to the traceback, which refers to the frames
    finally:
        sys.settrace(None)
    return interrupter.has_fired


def test_interrupt_at_any_bytecode_leaves_no_lock_renewed(client: redis.Redis) -> None:
    """Each lock is free after its ttl at the latest, although `leases` refers to the leases.

    The ttl is long enough for the renewals on a busy machine: a lease that is lost because no
    renewal came in time would hide a thread that renews forever.
    """
    leases: list[Lease] = []
    number = 0
    while hold_interrupted(OneFileLock(client, f"interrupted {number}", ttl=2), number, leases):
        number += 1
    assert number > 100  # or the trace function has missed most of the bytecodes
    gc.collect()
    eventually(lambda: not client.keys("lock:{interrupted*}"), within=10)
    eventually(lambda: not list_renewing_threads(), within=10)


def list_renewing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "locks.one_file"]


def test_garbage_collection_does_not_end_renewals(client: redis.Redis) -> None:
    """Only the block refers to the object that the renewing thread looks for."""

    def hold() -> None:
        with OneFileLock(client, "x", ttl=2).hold(wait=1) as lease:
            for _ in range(3):
                gc.collect()
                time.sleep(1)  # three times: longer than the ttl
                lease.check()

    gc.collect()
    gc.freeze()  # collecting the whole suite's objects would delay the renewing thread
    run_in_thread(hold).result(20)
