"""Ways to make a fault that looks made and is not, on real servers."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadtest.faults import database, holder, refusing_redis
from loadtest.faults.buyer import Buyer
from loadtest.faults.database import FenceAhead, FenceAheadRaised
from loadtest.faults.holder import PAUSE, Crash, Pause, Shutdown, ShutdownShort
from loadtest.faults.lost_lock import Eviction, RedisDown
from loadtest.faults.network import Partition
from loadtest.faults.refusing_redis import Stall
from loadtest.faults.testbed import RIVALS, VICTIMS, Testbed, wait_for
from loadtest.faults.trial import Trial
from servers.postgres_copy import PostgresCopy
from servers.proxy.connection import Closed, Connection
from servers.proxy.proxy import Proxy
from servers.valkey import Valkey

#: A script that keeps Redis busy for a moment only.
SHORT = "local n = 0 while n < 5000000 do n = n + 1 end"


@dataclass(frozen=True, slots=True)
class Neuter:
    """How a fault is neutered: what it has under this name is something else instead.

    faults    names of the faults, each of which is neutered in this way
    only_ttl  whether only locks that end by themselves notice: the others have no ttl
    """

    faults: str
    how: str
    owner: Any
    name: str
    instead: Any
    only_ttl: bool = False


def nothing(*_: object, **__: object) -> None:
    """Do nothing."""


_fire_shutdown, _fire_pause, _fire_stall = Shutdown.fire, Pause.fire, Stall.fire
_whole_pids, _send, _switch = Testbed.pids, Trial.send, Proxy.switch
_match_rules = Connection._match_rules


def too_late(fault: Shutdown) -> None:
    """SIGTERM when everybody has been answered."""
    for trial in fault.trials:
        trial.resume_victim(seconds=10)
        trial.guest.answered.wait(10)
    _fire_shutdown(fault)


def for_a_moment(fault: Pause) -> None:
    """SIGCONT as soon as it is proved, and SIGSTOP again just before anybody looks."""

    def go_on() -> None:
        wait_for(lambda: hasattr(fault, "watched"), 10)
        fault.testbed.signal(VICTIMS, signal.SIGCONT)
        time.sleep(PAUSE - 0.15)
        fault.testbed.signal(VICTIMS, signal.SIGSTOP)

    _fire_pause(fault)
    threading.Thread(target=go_on, daemon=True).start()


def kill_master(fault: Crash) -> None:
    process = fault.testbed.process_of(VICTIMS)
    process.kill()
    process.wait()


def signal_master(testbed: Testbed, node: int, what: signal.Signals) -> None:
    """Only the first process of a node gets a signal."""
    os.kill(testbed.pids(node)[0], what)


def master_only(testbed: Testbed, node: int) -> list[int]:
    """The list of pids that fires and proves knows the master alone."""
    return _whole_pids(testbed, node)[:1]


def long_ttl(testbed: Testbed, seconds: float) -> None:
    """Locks live for 60 s, whatever the fault asks for."""
    testbed.ttl = 60
    for node in (VICTIMS, RIVALS):
        testbed.restart(node)


def drop_request(connection: Connection, request: bytes) -> None:
    """The proxy drops the request and not its reply, and says that it dropped the reply."""
    _match_rules(connection, request)
    if connection._losing is not None:
        connection._losing.fire(b"+OK")
        raise Closed


def deliver_reply(connection: Connection, reply: bytes) -> None:
    """The proxy delivers the reply, and says that it dropped it."""
    rule, connection._losing = connection._losing, None
    assert rule is not None
    rule.fire(reply)


def cut_off_both(fault: Partition) -> None:
    """The black hole swallows what both nodes send to Redis."""
    for proxy in fault.testbed.redis:
        proxy.black_hole()


def ask_node_b(trial: Trial, buyer: Buyer, node: int = RIVALS) -> Buyer:
    """The buyer who is to be cut off asks the node that is not, and is sold a unit."""
    return _send(trial, buyer, RIVALS if buyer.attempt.endswith("cut-off") else node)


def lower_fence(fault: FenceAheadRaised, trial: Trial) -> None:
    """The operator lowers the database's fence, and holders that are stale may write again."""
    fault.testbed.sql(f"UPDATE product SET fence = 0 WHERE name = '{trial.product}' RETURNING 1")


def stop_nothing(fault: Stall) -> None:
    fault.pid = int(fault.ask("INFO", "server")["process_id"])


def stop_unconnected(fault: Stall) -> None:
    """Node A has no connection when Redis stops: what it sends first is never a lock's command."""
    fault.testbed.redis[VICTIMS].cut()
    _fire_stall(fault)


def end_nothing(fault: Shutdown) -> None:
    fault.process = fault.testbed.process_of(VICTIMS)


def no_switch() -> Callable[[Proxy, Any], None]:
    """The nodes' proxies are not sent to the new master."""
    left = [2]

    def ignore(proxy: Proxy, target: Any) -> None:
        left[0] -= 1
        if left[0] < 0:  # it is the repair that switches now
            _switch(proxy, target)

    return ignore


NEUTERS = [
    Neuter("crash slow late-release pause restart", "ttl 60 s", Testbed, "set_ttl", long_ttl,
           only_ttl=True),
    Neuter("crash", "no signal", Crash, "fire", nothing),
    Neuter("crash", "master only", Crash, "fire", kill_master),
    Neuter("pause pause@acquired", "no signal", Testbed, "signal", nothing),
    Neuter("pause pause@acquired", "master only", Testbed, "signal", signal_master),
    Neuter("pause pause@acquired", "master only, by the list", Testbed, "pids", master_only),
    Neuter("pause", "for a moment", Pause, "fire", for_a_moment),
    Neuter("pause@acquired", "ttl 60 s", Testbed, "set_ttl", long_ttl),
    Neuter("clock", "not ahead", holder, "WRONG_CLOCK", ""),
    Neuter("restart", "no kill", Testbed, "restart_empty", nothing),
    Neuter("failover split-brain", "not promoted", Valkey, "promote", nothing),
    Neuter("failover", "no switch", Proxy, "switch", no_switch()),
    Neuter("split-brain", "no switch", Proxy, "switch", no_switch()),
    Neuter("failover split-brain db-failover db-failover@sync", "replicated",
           Proxy, "black_hole", nothing),
    Neuter("failover@sentinel", "replicated", Proxy, "black_hole_replication", nothing),
    Neuter("partition partition-db", "no black hole", Proxy, "black_hole", nothing),
    Neuter("partition", "both nodes", Partition, "fire", cut_off_both),
    Neuter("partition", "the cut-off buyer asks node B", Trial, "send", ask_node_b),
    Neuter("slow-write", "no delay", Proxy, "delay", nothing),
    Neuter("misconf", "nothing refused", refusing_redis, "REFUSALS", {"OOM": ("PING", "PING")}),
    Neuter("misconf", "snapshots succeed", refusing_redis, "LASTING", []),
    Neuter("fence-ahead fence-ahead@raised", "not ahead", FenceAhead, "fire", nothing),
    Neuter("fence-ahead@raised", "lowered", FenceAheadRaised, "raise_fence", lower_fence),
    Neuter("db-failover", "not promoted", PostgresCopy, "promote", nothing),
    Neuter("quorum", "nothing cut off", Proxy, "black_hole", nothing),
    Neuter("lost-reply", "request dropped", Connection, "_match_rules", drop_request),
    Neuter("unknown-commit", "COMMIT dropped", Connection, "_match_rules", drop_request),
    Neuter("lost-reply unknown-commit", "reply delivered", Connection, "_lose", deliver_reply),
    Neuter("lost-reply unknown-commit", "nothing dropped", Connection, "_match_rules", nothing),
    Neuter("busy", "ends early", refusing_redis, "ENDLESS", SHORT),
    Neuter("busy", "not busy", refusing_redis, "ENDLESS", "return 1"),
    Neuter("redis-down", "no kill", RedisDown, "fire", nothing),
    Neuter("stall", "no signal", Stall, "fire", stop_nothing),
    Neuter("stall", "no connection", Stall, "fire", stop_unconnected),
    Neuter("eviction", "nothing evicted", Eviction, "fire", Eviction.note),
    Neuter("db-kill", "no kill", database, "KILL", "SELECT 1, true WHERE false"),
    Neuter("db-kill", "one only", database, "KILL", f"{database.KILL} LIMIT 1"),
    Neuter("shutdown", "no signal", Shutdown, "fire", end_nothing),
    Neuter("shutdown", "nobody was left", Shutdown, "fire", too_late),
    Neuter("shutdown@short", "no signal", ShutdownShort, "fire", end_nothing),
    Neuter("shutdown@short", "time to finish", ShutdownShort, "arm", nothing),
]  # fmt: skip
