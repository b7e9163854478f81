"""Ways to make faults ineffective on real servers, so that they only appear to happen.

The verdict on such a fault must be inconclusive. loadtest/faults/fault.py explains the steps of a
fault (arm, fire, prove) and its buyers (victims, rivals).
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from loadtest.faults.fault import Fault
from loadtest.faults.fault_buyer import FaultBuyer
from loadtest.faults.kinds import busy, clock, db_kill, misconf
from loadtest.faults.kinds.crash import CrashFault
from loadtest.faults.kinds.eviction import EvictionFault
from loadtest.faults.kinds.late_release import LateReleaseFault
from loadtest.faults.kinds.partition import PartitionFault
from loadtest.faults.kinds.pause import PAUSE_SECONDS, PauseFault
from loadtest.faults.kinds.redis_down import RedisDownFault
from loadtest.faults.kinds.shutdown import ShutdownFault, ShutdownShortFault
from loadtest.faults.kinds.slow import SlowFault
from loadtest.faults.kinds.slow_write import SlowWriteFault
from loadtest.faults.kinds.stall import StallFault
from loadtest.faults.testbed import RIVALS_NODE, VICTIMS_NODE, Testbed, wait_for
from loadtest.faults.trial import Trial
from servers.postgres_copy import PostgresCopy
from servers.proxy.connection import Closed, Connection, ProxyRule
from servers.proxy.proxy import Proxy
from servers.valkey import Valkey

F = TypeVar("F", bound=Fault)
#: A ttl that no fault outlasts.
LONG_TTL_SECONDS = 60
#: Time before the end of a pause at which an interrupted pause begins again.
SECOND_PAUSE_SECONDS = 0.15
#: A Lua script that keeps Redis busy for a moment only.
SHORT_SCRIPT = "local n = 0 while n < 5000000 do n = n + 1 end"


@dataclass(frozen=True, slots=True)
class WeakenedFault:
    """A way to make a fault ineffective: an attribute of its code is replaced.

    faults         names of the faults that are weakened in this way, separated by spaces
    how            the way in words, for the test's id
    owner          the class or module whose attribute is replaced
    attribute      the name of the attribute
    replacement    what the attribute is instead; a function takes the original's arguments
    only_with_ttl  whether the replacement weakens the fault only for locks that have a ttl
    """

    faults: str
    how: str
    owner: Any
    attribute: str
    replacement: Any
    only_with_ttl: bool = False


def do_nothing(*_: object, **__: object) -> None:
    """Do nothing."""


# The originals that the replacements below call.
_original_fire_shutdown = ShutdownFault.fire
_original_fire_pause = PauseFault.fire
_original_fire_stall = StallFault.fire
_original_prove_slow_write = SlowWriteFault.prove
_original_pids = Testbed.pids
_original_send = Trial.send
_original_switch = Proxy.switch
_original_match_rules = Connection._match_rules


def release_after(prove: Callable[[F], str]) -> Callable[[F], str]:
    """Return a replacement of a fault's prove() that weakens the fault.

    As soon as prove() has shown that the victims, the buyers whom the fault hits, are stopped, the
    replacement lets them continue.
    """

    def prove_and_release(fault: F) -> str:
        evidence = prove(fault)
        for trial in fault.trials:
            trial.resume_victim(timeout_seconds=5)
        return evidence

    return prove_and_release


def prove_and_lift_delay(fault: SlowWriteFault) -> str:
    """Replace SlowWriteFault.prove(): prove the delay of the network, and remove it at once."""
    evidence = _original_prove_slow_write(fault)
    fault.testbed.database_proxy.pass_on()
    return evidence


def terminate_too_late(fault: ShutdownFault) -> None:
    """Replace ShutdownFault.fire(): send SIGTERM to node A only after its buyers were answered."""
    for trial in fault.trials:
        trial.resume_victim(timeout_seconds=10)
        trial.waiting_buyer.is_done.wait(10)
    _original_fire_shutdown(fault)


def interrupt_pause(fault: PauseFault) -> None:
    """Replace PauseFault.fire(): pause node A, but let it run for most of the pause.

    It is resumed as soon as prove() has seen the pause, and paused again just before the end.
    """

    def resume_in_between() -> None:
        wait_for(lambda: hasattr(fault, "switches_by_pid"), 10)  # prove() sets it at its end
        fault.testbed.send_signal(VICTIMS_NODE, signal.SIGCONT)
        time.sleep(PAUSE_SECONDS - SECOND_PAUSE_SECONDS)
        fault.testbed.send_signal(VICTIMS_NODE, signal.SIGSTOP)

    _original_fire_pause(fault)
    threading.Thread(target=resume_in_between, daemon=True).start()


def kill_master_only(fault: CrashFault) -> None:
    """Replace CrashFault.fire(): kill the master process of gunicorn, and not its workers."""
    process = fault.testbed.gunicorn_master_of(VICTIMS_NODE)
    process.kill()
    process.wait()


def signal_master_only(testbed: Testbed, node: int, signum: signal.Signals) -> None:
    """Send a signal to gunicorn's master, and not to its workers."""
    os.kill(testbed.pids(node)[0], signum)


def list_master_only(testbed: Testbed, node: int) -> list[int]:
    """Return only the master's pid, so that neither fire() nor prove() knows of the workers."""
    return _original_pids(testbed, node)[:1]


def set_long_ttl(testbed: Testbed, seconds: float) -> None:
    """Replace Testbed.set_ttl(): restart both nodes with a ttl that no fault outlasts."""
    testbed.ttl = LONG_TTL_SECONDS
    for node in (VICTIMS_NODE, RIVALS_NODE):
        testbed.restart(node)


def drop_request(connection: Connection, request: bytes) -> None:
    """Drop a request, and report that its reply was dropped.

    This concerns the request whose reply a rule of the proxy would drop.
    """
    _original_match_rules(connection, request)
    if connection._pending_rule is not None:
        connection._pending_rule.fire(b"+OK")  # an invented reply
        raise Closed  # makes the proxy close the connection, as after a dropped reply


def deliver_reply(
    connection: Connection, rule: ProxyRule, server: socket.socket, reply: bytes
) -> None:
    """Let the proxy deliver a reply, but report that it was dropped."""
    connection._pending_rule = None
    rule.fire(reply)


def cut_off_both_nodes(fault: PartitionFault) -> None:
    """Replace PartitionFault.fire(): cut off both nodes from Redis, and not only node A."""
    for proxy in fault.testbed.redis_proxies:
        proxy.black_hole()


def ask_node_b(trial: Trial, buyer: FaultBuyer, node: int = RIVALS_NODE) -> FaultBuyer:
    """Replace Trial.send(): send the buyer who should be cut off to node B, where it can buy.

    Only node A is cut off from Redis. Other buyers are sent to `node`.
    """
    if buyer.attempt.endswith("cut-off"):
        node = RIVALS_NODE
    return _original_send(trial, buyer, node)


def find_redis(fault: StallFault) -> None:
    """Record the pid that prove() looks at, and send no signal."""
    fault.pid = int(fault.run_redis_command("INFO", "server")["process_id"])


def stop_redis_unconnected(fault: StallFault) -> None:
    """Replace StallFault.fire(): close node A's connections to Redis, and then stop Redis.

    Node A has to connect again first, so no command of a lock waits for Redis.
    """
    fault.testbed.redis_proxies[VICTIMS_NODE].cut()
    _original_fire_stall(fault)


def find_node_a(fault: ShutdownFault) -> None:
    """Record the process that prove() looks at, and send no signal."""
    fault.process = fault.testbed.gunicorn_master_of(VICTIMS_NODE)


def make_late_switch() -> Callable[[Proxy, Any], None]:
    """Return a replacement of Proxy.switch(), which should lead the nodes to the new master.

    The first two calls, one for each node, do nothing, so that the nodes stay at the old master.
    Later calls, which repair the testbed, do switch. The calls are counted, so each fault needs
    its own replacement.
    """
    call_numbers = count(1)

    def switch_from_third_call(proxy: Proxy, target: Any) -> None:
        if next(call_numbers) > 2:
            _original_switch(proxy, target)

    return switch_from_third_call


WEAKENED_FAULTS = [
    WeakenedFault(
        "crash slow late-release pause restart",
        "ttl 60 s",
        Testbed,
        "set_ttl",
        set_long_ttl,
        only_with_ttl=True,
    ),
    WeakenedFault("crash", "no signal", CrashFault, "fire", do_nothing),
    WeakenedFault("crash", "master only", CrashFault, "fire", kill_master_only),
    WeakenedFault("pause pause@acquired", "no signal", Testbed, "send_signal", do_nothing),
    WeakenedFault(
        "pause pause@acquired", "master only", Testbed, "send_signal", signal_master_only
    ),
    WeakenedFault(
        "pause pause@acquired", "master only, by the list", Testbed, "pids", list_master_only
    ),
    WeakenedFault("pause", "interrupted", PauseFault, "fire", interrupt_pause),
    WeakenedFault("pause@acquired", "ttl 60 s", Testbed, "set_ttl", set_long_ttl),
    WeakenedFault("clock", "not ahead", clock, "WRONG_CLOCK", ""),
    WeakenedFault("restart", "no kill", Testbed, "restart_empty", do_nothing),
    WeakenedFault("failover split-brain", "not promoted", Valkey, "promote", do_nothing),
    WeakenedFault("failover", "no switch", Proxy, "switch", make_late_switch()),
    WeakenedFault("split-brain", "no switch", Proxy, "switch", make_late_switch()),
    WeakenedFault(
        "failover split-brain db-failover db-failover@sync",
        "replicated",
        Proxy,
        "black_hole",
        do_nothing,
    ),
    WeakenedFault("failover@sentinel", "replicated", Proxy, "black_hole_replication", do_nothing),
    WeakenedFault("partition partition-db", "no black hole", Proxy, "black_hole", do_nothing),
    WeakenedFault("partition", "both nodes", PartitionFault, "fire", cut_off_both_nodes),
    WeakenedFault("partition", "the cut-off buyer asks node B", Trial, "send", ask_node_b),
    WeakenedFault("slow-write", "no delay", Proxy, "delay", do_nothing),
    WeakenedFault("slow-write", "delay lifted", SlowWriteFault, "prove", prove_and_lift_delay),
    WeakenedFault("slow", "victims released", SlowFault, "prove", release_after(SlowFault.prove)),
    WeakenedFault(
        "late-release",
        "victims released",
        LateReleaseFault,
        "prove",
        release_after(LateReleaseFault.prove),
    ),
    # PING in place of the commands that begin and end a state in which Redis refuses writes.
    WeakenedFault("misconf", "nothing refused", misconf, "WRITE_ERRORS", {"OOM": ("PING", "PING")}),
    WeakenedFault("misconf", "snapshots succeed", misconf, "FAILED_SAVE_COMMANDS", []),
    WeakenedFault("db-failover", "not promoted", PostgresCopy, "promote", do_nothing),
    WeakenedFault("quorum", "nothing cut off", Proxy, "black_hole", do_nothing),
    WeakenedFault("lost-reply", "request dropped", Connection, "_match_rules", drop_request),
    WeakenedFault("unknown-commit", "COMMIT dropped", Connection, "_match_rules", drop_request),
    WeakenedFault(
        "lost-reply unknown-commit", "reply delivered", Connection, "_drop_reply", deliver_reply
    ),
    WeakenedFault(
        "lost-reply unknown-commit", "nothing dropped", Connection, "_match_rules", do_nothing
    ),
    WeakenedFault("busy", "ends early", busy, "ENDLESS_SCRIPT", SHORT_SCRIPT),
    WeakenedFault("busy", "not busy", busy, "ENDLESS_SCRIPT", "return 1"),
    WeakenedFault("redis-down", "no kill", RedisDownFault, "fire", do_nothing),
    WeakenedFault("stall", "no signal", StallFault, "fire", find_redis),
    WeakenedFault("stall", "no connection", StallFault, "fire", stop_redis_unconnected),
    # fire() calls this method first. Without the rest of fire(), nothing is evicted.
    WeakenedFault(
        "eviction", "nothing evicted", EvictionFault, "fire", EvictionFault.record_state_before
    ),
    # A query with the same columns, but without rows: no connection was signalled.
    WeakenedFault("db-kill", "no kill", db_kill, "END_BACKENDS_SQL", "SELECT 1, true WHERE false"),
    WeakenedFault(
        "db-kill",
        "one connection only",
        db_kill,
        "END_BACKENDS_SQL",
        f"{db_kill.END_BACKENDS_SQL} LIMIT 1",
    ),
    WeakenedFault("shutdown", "no signal", ShutdownFault, "fire", find_node_a),
    WeakenedFault("shutdown", "no buyer was left", ShutdownFault, "fire", terminate_too_late),
    WeakenedFault("shutdown@short", "no signal", ShutdownShortFault, "fire", find_node_a),
    # arm() would restart node A with a graceful timeout of 1 s.
    WeakenedFault("shutdown@short", "time to finish", ShutdownShortFault, "arm", do_nothing),
]
