"""Ways to make faults ineffective on real servers, so that they only appear to happen.

The load test must report that such a fault was inconclusive. Each replacement below weakens one
step of a fault, which loadtest/faults/fault.py explains: arm() prepares the fault, fire() makes it
happen, and prove() observes that it happened. The fault hits the victims, who buy on node A. Rivals
are other buyers, who buy on node B meanwhile. A trial is one strategy under the fault.
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
#: A ttl that is longer than every fault, so no lock expires.
LONG_TTL_SECONDS = 60
#: interrupt_pause() resumes a paused node early, and pauses it again this long before the end.
SECOND_PAUSE_SECONDS = 0.15
#: A Lua script that keeps Redis busy for a moment only.
SHORT_SCRIPT = "local n = 0 while n < 5000000 do n = n + 1 end"


@dataclass(frozen=True, slots=True)
class WeakenedFault:
    """A way to make a fault ineffective: an attribute of its code is replaced.

    faults       names of the faults that are weakened in this way, separated by spaces
    description  what is different from the real fault, for the test's id
    owner        the class or module whose attribute is replaced
    attribute    the name of the attribute
    replacement  the new value of the attribute; a function takes the arguments of the original
    needs_ttl    whether the replacement weakens the fault only for locks that have a ttl
    """

    faults: str
    description: str
    owner: Any
    attribute: str
    replacement: Any
    needs_ttl: bool = False


def do_nothing(*_: object, **__: object) -> None:
    """Replace any function by one that does nothing."""


# The originals that the replacements below call.
_original_fire_shutdown = ShutdownFault.fire
_original_fire_pause = PauseFault.fire
_original_fire_stall = StallFault.fire
_original_prove_slow_write = SlowWriteFault.prove
_original_list_pids = Testbed.list_pids
_original_start_buyer = Trial.start_buyer
_original_switch = Proxy.switch
_original_match_rules = Connection._match_rules


def resume_victims_after(prove: Callable[[F], str]) -> Callable[[F], str]:
    """Return a replacement of a fault's prove() that resumes the victims at once.

    The fault would keep them stopped until the rivals have bought.
    """

    def prove_and_resume(fault: F) -> str:
        evidence = prove(fault)
        for trial in fault.trials:
            trial.resume_victim(timeout_seconds=5)
        return evidence

    return prove_and_resume


def prove_and_remove_delay(fault: SlowWriteFault) -> str:
    """Replace SlowWriteFault.prove(): measure the delay of the network, and remove it at once.

    The fault would delay every message until the victims are answered.
    """
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

    Node A is resumed as soon as prove() has observed the pause, and paused again just before the
    end.
    """

    def resume_in_between() -> None:
        wait_for(lambda: hasattr(fault, "switches_by_pid"), 10)  # set at the end of prove()
        fault.testbed.send_signal(VICTIMS_NODE, signal.SIGCONT)
        time.sleep(PAUSE_SECONDS - SECOND_PAUSE_SECONDS)
        fault.testbed.send_signal(VICTIMS_NODE, signal.SIGSTOP)

    _original_fire_pause(fault)
    threading.Thread(target=resume_in_between, daemon=True).start()


def kill_master_only(fault: CrashFault) -> None:
    """Replace CrashFault.fire(): kill the master process of gunicorn, and not its workers."""
    process = fault.testbed.get_gunicorn_master(VICTIMS_NODE)
    process.kill()
    process.wait()


def signal_master_only(testbed: Testbed, node: int, signum: signal.Signals) -> None:
    """Replace Testbed.send_signal(): send a signal to gunicorn's master, and not to its workers."""
    os.kill(testbed.list_pids(node)[0], signum)


def list_master_pid_only(testbed: Testbed, node: int) -> list[int]:
    """Replace Testbed.list_pids(): return the master's pid only.

    Then fire() signals no worker, and prove() looks at no worker.
    """
    return _original_list_pids(testbed, node)[:1]


def set_long_ttl(testbed: Testbed, seconds: float) -> None:
    """Replace Testbed.set_ttl(): restart both nodes with a ttl that is longer than every fault."""
    testbed.ttl = LONG_TTL_SECONDS
    for node in (VICTIMS_NODE, RIVALS_NODE):
        testbed.restart(node)


def drop_request(connection: Connection, request: bytes) -> None:
    """Replace Connection._match_rules(): drop a request, but report that its reply was dropped.

    The fault sets a rule in the proxy that drops the reply to one request. Here that request is
    dropped, so the server never receives it.
    """
    _original_match_rules(connection, request)
    if connection._pending_rule is not None:
        connection._pending_rule.fire(b"+OK")  # an invented reply
        raise Closed  # makes the proxy close the connection, as after a dropped reply


def deliver_reply(
    connection: Connection, rule: ProxyRule, server: socket.socket, reply: bytes
) -> None:
    """Replace Connection._drop_reply(): deliver a reply, but report that it was dropped."""
    connection._pending_rule = None
    rule.fire(reply)


def cut_off_both_nodes(fault: PartitionFault) -> None:
    """Replace PartitionFault.fire(): cut off both nodes from Redis, and not only node A."""
    for proxy in fault.testbed.redis_proxies:
        proxy.black_hole()


def send_cut_off_buyer_to_node_b(
    trial: Trial, buyer: FaultBuyer, node: int = RIVALS_NODE
) -> FaultBuyer:
    """Replace Trial.start_buyer(): send the buyer who should be cut off from Redis to node B.

    Only node A is cut off, so this buyer can buy. Node B is the node of the rivals. All other
    buyers are sent to `node`.
    """
    if buyer.attempt.endswith("cut-off"):
        node = RIVALS_NODE
    return _original_start_buyer(trial, buyer, node)


def record_redis_pid_only(fault: StallFault) -> None:
    """Replace StallFault.fire(): record the pid that prove() checks, but do not stop Redis."""
    fault.pid = int(fault.run_redis_command("INFO", "server")["process_id"])


def disconnect_node_and_stop_redis(fault: StallFault) -> None:
    """Replace StallFault.fire(): close node A's connections to Redis, and then stop Redis.

    In the real fault, node A sends a command of the lock, which is never answered. Without open
    connections, node A would have to connect first, so it sends no command.
    """
    fault.testbed.redis_proxies[VICTIMS_NODE].cut()
    _original_fire_stall(fault)


def record_node_a_only(fault: ShutdownFault) -> None:
    """Replace ShutdownFault.fire(): record the process that prove() checks, but send no SIGTERM."""
    fault.process = fault.testbed.get_gunicorn_master(VICTIMS_NODE)


def make_switch_from_third_call() -> Callable[[Proxy, Any], None]:
    """Return a replacement of Proxy.switch() whose first two calls do nothing.

    The first two calls come from the fault, one for each node. They should connect the nodes to the
    new master, but the nodes stay at the old one. Later calls come from the repair of the testbed,
    and work as usual. The replacement counts its calls, so each fault needs a new replacement.
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
        needs_ttl=True,
    ),
    WeakenedFault("crash", "no signal", CrashFault, "fire", do_nothing),
    WeakenedFault("crash", "workers not killed", CrashFault, "fire", kill_master_only),
    WeakenedFault("pause pause@acquired", "no signal", Testbed, "send_signal", do_nothing),
    WeakenedFault(
        "pause pause@acquired", "workers not signalled", Testbed, "send_signal", signal_master_only
    ),
    WeakenedFault(
        "pause pause@acquired",
        "workers missing in the pid list",
        Testbed,
        "list_pids",
        list_master_pid_only,
    ),
    WeakenedFault("pause", "interrupted pause", PauseFault, "fire", interrupt_pause),
    WeakenedFault("pause@acquired", "ttl 60 s", Testbed, "set_ttl", set_long_ttl),
    WeakenedFault("clock", "clock not ahead", clock, "WRONG_CLOCK", ""),
    WeakenedFault("restart", "no kill", Testbed, "restart_empty", do_nothing),
    WeakenedFault("failover split-brain", "not promoted", Valkey, "promote", do_nothing),
    WeakenedFault(
        "failover", "nodes stay at the old master", Proxy, "switch", make_switch_from_third_call()
    ),
    WeakenedFault(
        "split-brain",
        "nodes stay at the old master",
        Proxy,
        "switch",
        make_switch_from_third_call(),
    ),
    WeakenedFault(
        "failover split-brain db-failover db-failover@sync",
        "replication not cut off",
        Proxy,
        "black_hole",
        do_nothing,
    ),
    WeakenedFault(
        "failover@sentinel", "replication not cut off", Proxy, "black_hole_replication", do_nothing
    ),
    WeakenedFault("partition partition-db", "no black hole", Proxy, "black_hole", do_nothing),
    WeakenedFault("partition", "both nodes cut off", PartitionFault, "fire", cut_off_both_nodes),
    WeakenedFault(
        "partition",
        "cut-off buyer sent to node B",
        Trial,
        "start_buyer",
        send_cut_off_buyer_to_node_b,
    ),
    WeakenedFault("slow-write", "no delay", Proxy, "delay", do_nothing),
    WeakenedFault(
        "slow-write", "delay removed too early", SlowWriteFault, "prove", prove_and_remove_delay
    ),
    WeakenedFault(
        "slow",
        "victims resumed too early",
        SlowFault,
        "prove",
        resume_victims_after(SlowFault.prove),
    ),
    WeakenedFault(
        "late-release",
        "victims resumed too early",
        LateReleaseFault,
        "prove",
        resume_victims_after(LateReleaseFault.prove),
    ),
    # The fault sends commands that make Redis refuse writes, and later accept them. Here it sends
    # PING.
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
    WeakenedFault("busy", "script ends early", busy, "ENDLESS_SCRIPT", SHORT_SCRIPT),
    WeakenedFault("busy", "not busy", busy, "ENDLESS_SCRIPT", "return 1"),
    WeakenedFault("redis-down", "no kill", RedisDownFault, "fire", do_nothing),
    WeakenedFault("stall", "no signal", StallFault, "fire", record_redis_pid_only),
    WeakenedFault(
        "stall", "node A disconnected before", StallFault, "fire", disconnect_node_and_stop_redis
    ),
    # EvictionFault.fire() calls record_locks_and_evictions(), and then evicts keys. Here no key is
    # evicted.
    WeakenedFault(
        "eviction",
        "nothing evicted",
        EvictionFault,
        "fire",
        EvictionFault.record_locks_and_evictions,
    ),
    # The fault's query ends connections. This one returns the same columns, and ends none.
    WeakenedFault("db-kill", "no kill", db_kill, "END_BACKENDS_SQL", "SELECT 1, true WHERE false"),
    WeakenedFault(
        "db-kill",
        "one connection only",
        db_kill,
        "END_BACKENDS_SQL",
        f"{db_kill.END_BACKENDS_SQL} LIMIT 1",
    ),
    WeakenedFault("shutdown", "no signal", ShutdownFault, "fire", record_node_a_only),
    WeakenedFault(
        "shutdown", "SIGTERM after the answers", ShutdownFault, "fire", terminate_too_late
    ),
    WeakenedFault("shutdown@short", "no signal", ShutdownShortFault, "fire", record_node_a_only),
    # The fault's arm() restarts node A with a graceful timeout of 1 s.
    WeakenedFault(
        "shutdown@short", "default graceful timeout", ShutdownShortFault, "arm", do_nothing
    ),
]
