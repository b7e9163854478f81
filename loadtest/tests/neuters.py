"""Ways to make a fault that looks made and is not, on real servers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from loadtest.faults import busy, clock, crash, misconf
from loadtest.faults.buyer import Buyer
from loadtest.faults.crash import Crash
from loadtest.faults.eviction import Eviction
from loadtest.faults.fence_ahead import FenceAhead, FenceAheadRaised
from loadtest.faults.partition import Partition
from loadtest.faults.pause import PAUSE, Pause
from loadtest.faults.restart import RedisDown
from loadtest.faults.shutdown import Shutdown, ShutdownShort
from loadtest.faults.stall import Stall
from loadtest.faults.testbed import RIVALS, VICTIMS, Testbed
from loadtest.faults.trial import Trial
from servers.postgres_copy import PostgresCopy
from servers.proxy.connection import Closed, Connection
from servers.proxy.proxy import Proxy
from servers.valkey import Valkey

Patch = pytest.MonkeyPatch
#: A script that keeps Redis busy for a moment only.
SHORT = "local n = 0 while n < 20000000 do n = n + 1 end"


@dataclass(frozen=True, slots=True)
class Neuter:
    """How a fault is neutered.

    apply     does it, until the patch is undone
    only_ttl  whether only locks that end by themselves notice: the others have no ttl
    """

    fault: str
    how: str
    apply: Callable[[Patch, Testbed], None]
    only_ttl: bool = False


def nothing(owner: Any, *names: str) -> Callable[[Patch, Testbed], None]:
    """Calling these does nothing."""

    def apply(patch: Patch, testbed: Testbed) -> None:
        for name in names:
            patch.setattr(owner, name, lambda *_, **__: None)

    return apply


def fires(owner: Any, fire: Callable[..., None]) -> Callable[[Patch, Testbed], None]:
    """The fault fires like this instead."""
    return lambda patch, testbed: patch.setattr(owner, "fire", fire)


def raises(raise_fence: Callable[..., None]) -> Callable[[Patch, Testbed], None]:
    """The operator does this instead."""
    return lambda patch, testbed: patch.setattr(FenceAheadRaised, "raise_fence", raise_fence)


def text(module: Any, name: str, instead: object) -> Callable[[Patch, Testbed], None]:
    return lambda patch, testbed: patch.setattr(module, name, instead)


def too_late(fault: Shutdown) -> None:
    """SIGTERM when everybody has been answered."""
    for trial in fault.trials:
        assert trial.victim is not None
        trial.resume_victim(seconds=10)
        if trial.guest is not None:
            trial.guest.answered.wait(10)
    original_shutdown(fault)


original_shutdown = Shutdown.fire
original_pause = Pause.fire


def for_a_moment(fault: Pause) -> None:
    """SIGCONT after 0.05 s, and SIGSTOP again just before anybody looks."""

    def go_on() -> None:
        time.sleep(0.05)
        fault.testbed.signal(VICTIMS, signal.SIGCONT)
        time.sleep(PAUSE - 0.15)
        fault.testbed.signal(VICTIMS, signal.SIGSTOP)

    original_pause(fault)
    threading.Thread(target=go_on, daemon=True).start()


def kill_master(fault: Crash) -> None:
    process = fault.testbed.process_of(VICTIMS)
    process.kill()
    process.wait()


def signal_master(patch: Patch, testbed: Testbed) -> None:
    """Only the first process of a node gets a signal."""

    def send(self: Testbed, node: int, what: signal.Signals) -> list[int]:
        os.kill(self.pids(node)[0], what)
        return self.pids(node)

    patch.setattr(Testbed, "signal", send)


def see_master_only(patch: Patch, testbed: Testbed) -> None:
    """The list of pids that fires and proves knows the master alone."""
    whole = Testbed.pids
    patch.setattr(Testbed, "pids", lambda self, node: whole(self, node)[:1])


def long_ttl(patch: Patch, testbed: Testbed) -> None:
    """Locks live for 60 s, whatever the fault asks for."""

    def set_ttl(self: Testbed, seconds: float) -> None:
        self.ttl = 60
        for node in (VICTIMS, RIVALS):
            self.restart(node)

    patch.setattr(Testbed, "set_ttl", set_ttl)
    testbed.set_ttl(60)


def drop_request(patch: Patch, testbed: Testbed) -> None:
    """The proxy drops the request and not its reply, and says that it dropped the reply."""

    match = Connection._match_rules

    def drop(self: Connection, request: bytes) -> None:
        match(self, request)
        if self._losing is not None:
            self._losing.fire(b"+OK")
            raise Closed

    patch.setattr(Connection, "_match_rules", drop)


def deliver_reply(patch: Patch, testbed: Testbed) -> None:
    """The proxy delivers the reply, and says that it dropped it."""

    def lose(self: Connection, reply: bytes) -> None:
        rule, self._losing = self._losing, None
        assert rule is not None
        rule.fire(reply)

    patch.setattr(Connection, "_lose", lose)


def cut_off_both(fault: Partition) -> None:
    """The black hole swallows what both nodes send to Redis."""
    for proxy in fault.testbed.redis:
        proxy.black_hole()


def ask_node_b(patch: Patch, testbed: Testbed) -> None:
    """The buyer who is to be cut off asks the node that is not, and is sold a unit."""
    send = Trial.send

    def elsewhere(self: Trial, buyer: Buyer, node: int = RIVALS) -> Buyer:
        return send(self, buyer, RIVALS if buyer.attempt.endswith("cut-off") else node)

    patch.setattr(Trial, "send", elsewhere)


def lower_fence(fault: FenceAheadRaised, trial: Trial) -> None:
    """The operator lowers the database's fence, and holders that are stale may write again."""
    fault.testbed.sql(f"UPDATE product SET fence = 0 WHERE name = '{trial.product}' RETURNING 1")
    fault.raised.append(trial)


def stop_nothing(fault: Stall) -> None:
    fault.pid = int(fault.ask("INFO", "server")["process_id"])


def end_nothing(fault: Shutdown) -> None:
    fault.process = fault.testbed.process_of(VICTIMS)


def no_switch(patch: Patch, testbed: Testbed) -> None:
    """The nodes' proxies are not sent to the new master."""
    switch, left = Proxy.switch, [2]

    def ignore(self: Proxy, target: Any) -> None:
        left[0] -= 1
        if left[0] < 0:  # it is the repair that switches now
            switch(self, target)

    patch.setattr(Proxy, "switch", ignore)


def time_to_finish(patch: Patch, testbed: Testbed) -> None:
    patch.setattr(ShutdownShort, "arm", lambda *_: None)


NEUTERS = [
    Neuter("crash", "no signal", fires(Crash, lambda *_: None)),
    Neuter("crash", "master only", fires(Crash, kill_master)),
    Neuter("crash", "ttl 60 s", long_ttl, only_ttl=True),
    Neuter("slow", "ttl 60 s", long_ttl, only_ttl=True),
    Neuter("late-release", "ttl 60 s", long_ttl, only_ttl=True),
    Neuter("pause", "no signal", nothing(Testbed, "signal")),
    Neuter("pause", "master only", signal_master),
    Neuter("pause", "master only, by the list", see_master_only),
    Neuter("pause", "ttl 60 s", long_ttl, only_ttl=True),
    Neuter("pause@acquired", "no signal", nothing(Testbed, "signal")),
    Neuter("pause@acquired", "master only", signal_master),
    Neuter("pause@acquired", "master only, by the list", see_master_only),
    Neuter("pause@acquired", "ttl 60 s", long_ttl),
    Neuter("clock", "not ahead", text(clock, "WRONG_CLOCK", "")),
    Neuter("restart", "no kill", nothing(Testbed, "restart_empty")),
    Neuter("restart", "ttl 60 s", long_ttl, only_ttl=True),
    Neuter("failover", "not promoted", nothing(Valkey, "promote")),
    Neuter("failover", "no switch", no_switch),
    Neuter("failover", "replicated", nothing(Proxy, "black_hole")),
    Neuter("failover@sentinel", "replicated", nothing(Proxy, "black_hole_replication")),
    Neuter("split-brain", "not promoted", nothing(Valkey, "promote")),
    Neuter("split-brain", "no switch", no_switch),
    Neuter("split-brain", "replicated", nothing(Proxy, "black_hole")),
    Neuter("partition", "no black hole", nothing(Proxy, "black_hole")),
    Neuter("partition", "both nodes", fires(Partition, cut_off_both)),
    Neuter("partition", "the cut-off buyer asks node B", ask_node_b),
    Neuter("partition-db", "no black hole", nothing(Proxy, "black_hole")),
    Neuter("slow-write", "no delay", nothing(Proxy, "delay")),
    Neuter("misconf", "nothing refused", text(misconf, "REFUSALS", {"OOM": ("PING", "PING")})),
    Neuter("misconf", "snapshots succeed", text(misconf, "LASTING", [])),
    Neuter("fence-ahead", "not ahead", fires(FenceAhead, lambda *_: None)),
    Neuter("fence-ahead@raised", "not ahead", fires(FenceAhead, lambda *_: None)),
    Neuter("fence-ahead@raised", "lowered", raises(lower_fence)),
    Neuter("db-failover", "replicated", nothing(Proxy, "black_hole")),
    Neuter("db-failover", "not promoted", nothing(PostgresCopy, "promote")),
    Neuter("db-failover@sync", "replicated", nothing(Proxy, "black_hole")),
    Neuter("quorum", "nothing cut off", nothing(Proxy, "black_hole")),
    Neuter("lost-reply", "request dropped", drop_request),
    Neuter("lost-reply", "reply delivered", deliver_reply),
    Neuter("lost-reply", "nothing dropped", nothing(Connection, "_match_rules")),
    Neuter("unknown-commit", "COMMIT dropped", drop_request),
    Neuter("unknown-commit", "reply delivered", deliver_reply),
    Neuter("unknown-commit", "nothing dropped", nothing(Connection, "_match_rules")),
    Neuter("busy", "ends early", text(busy, "ENDLESS", SHORT)),
    Neuter("busy", "not busy", text(busy, "ENDLESS", "return 1")),
    Neuter("redis-down", "no kill", fires(RedisDown, lambda *_: None)),
    Neuter("stall", "no signal", fires(Stall, stop_nothing)),
    Neuter("eviction", "nothing evicted", fires(Eviction, Eviction.note)),
    Neuter("db-kill", "no kill", text(crash, "KILL", "SELECT 1, true WHERE false")),
    Neuter("db-kill", "one only", text(crash, "KILL", f"{crash.KILL} LIMIT 1")),
    Neuter("shutdown", "no signal", fires(Shutdown, end_nothing)),
    Neuter("shutdown", "nobody was left", fires(Shutdown, too_late)),
    Neuter("pause", "for a moment", fires(Pause, for_a_moment)),
    Neuter("shutdown@short", "no signal", fires(ShutdownShort, end_nothing)),
    Neuter("shutdown@short", "time to finish", time_to_finish),
]
