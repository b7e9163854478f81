"""Holders in a process of their own, too slow, killed or paused; and a lock that sees no other.

All locks are held by one process, so that one pause and one kill serve them all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...classic.process import ProcessLock
from ...lease import Release
from .holder import Holder, holder
from .kinds import KINDS, Backends
from .servers import Valkey
from .test_flaws import gets_in

TTL = 0.5

#: Without ZooKeeper, which may be missing: test_zookeeper.py has the same tests for it.
KEPT_WHILE_ALIVE = {
    "setnx": True,
    "setnx-expire": False,
    "setnx-expire-lua": False,
    "setnx-timestamp": False,
    "setpx-del": False,
    "token": False,
    "token-watchdog": True,
    "reentrant": True,
    "redlock": False,
}


def rival_gets_in(kind: str, backends: Backends) -> bool:
    return gets_in(KINDS[kind](backends, f"held:{kind}", TTL), within=2 * TTL)


@pytest.fixture(scope="module")
def servers(valkey: Valkey, five: list[Valkey]) -> Iterator[Backends]:
    backends = Backends(valkey.port, [server.port for server in five])
    yield backends
    backends.close()


@pytest.fixture
def held(servers: Backends) -> Iterator[Holder]:
    """A process that holds every kind's lock."""
    for client in [servers.client, *servers.clients]:
        client.flushall()
    with holder(servers, list(KEPT_WHILE_ALIVE), ttl=TTL) as process:
        yield process


def all_rivals(servers: Backends) -> dict[str, bool]:
    """By kind: the rival did not get in, within two ttls of its own."""
    with ThreadPoolExecutor(len(KEPT_WHILE_ALIVE)) as rivals:
        got_in = rivals.map(lambda kind: rival_gets_in(kind, servers), KEPT_WHILE_ALIVE)
        return {kind: not got for kind, got in zip(KEPT_WHILE_ALIVE, got_in, strict=True)}


def test_a_slow_holder_keeps_the_lock_if_it_is_renewed_and_a_paused_one_does_not(
    held: Holder, servers: Backends
) -> None:
    assert all_rivals(servers) == KEPT_WHILE_ALIVE

    held.process.send_signal(signal.SIGSTOP)
    for kind in ("token-watchdog", "reentrant"):
        assert rival_gets_in(kind, servers)
    held.process.send_signal(signal.SIGCONT)
    found = held.release()
    for kind in ("token-watchdog", "reentrant"):  # only the release finds out
        assert found[kind] == {"lost": False, "trusted": False, "release": Release.EXPIRED}


def test_what_a_killed_holder_held_is_free_after_the_ttl_but_for_setnx(
    held: Holder, servers: Backends
) -> None:
    held.process.kill()
    assert all_rivals(servers) == dict.fromkeys(KEPT_WHILE_ALIVE, False) | {"setnx": True}
    assert servers.client.pttl("lock:held:setnx") == -1  # and it will be so forever


@pytest.mark.parametrize(("kind", "both_in"), [("process", True), ("token", False)])
def test_a_lock_of_one_process_does_not_keep_another_process_out(
    kind: str, both_in: bool, servers: Backends
) -> None:
    with holder(servers, [kind], ttl=30.0):
        assert gets_in(KINDS[kind](servers, f"held:{kind}", TTL), within=0) is both_in


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_finds_the_lock_of_its_process_free() -> None:
    with ProcessLock("apple").hold(0):
        if (child := os.fork()) == 0:
            os._exit(0 if ProcessLock("apple").try_acquire() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ProcessLock("apple").try_acquire() is None
