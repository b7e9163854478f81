"""A stress test of every kind of lock, with an outside checker: python -m locks.tests.stress --help

Some processes contend for one lock. Meanwhile this program kills and stops processes, cuts
connections, flushes the servers' scripts, pauses the servers and, in a cluster, moves the lock's
slot between the nodes. Each holder checks its lease several times, and records the time of each
check that passed in a history. It also adds 1 to a counter in a second server, which refuses stale
fences. Afterwards this program checks:

- no two leases were valid at the same time, and each fence is higher than the one before;
- the counter is the number of the increments;
- the lock was never unused for long while many waited for it;
- no process hung, or had waiters, leases, threads or tasks left when it ended;
- the lock can be acquired at the end.

The history is a file with one JSON object per line. There are two kinds of objects:

- {"token", "fence", "at"}: a check of the lease with this token and fence passed. "at" is the
  monotonic time in seconds just before the check.
- {"left"}: a process ended. "left" has the numbers of waiters, leases and the like left in it.

No line is buffered, so the history also has all lines of the processes that were killed.

The option --door chooses a kind of lock and the kind of server that it uses; each such pair is
called a door. The program prints a line of JSON per door. Its exit code is 1 if a check failed.
"""

import argparse
import asyncio
import itertools
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.process import BaseProcess
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import AsyncRedisLock, LockError, RedisLock, one_file
from ..cluster.nodes import ClusterNodes
from ..cluster.slots import compute_slot
from ..sans_io.protocol import derive_keys
from ..testing.cluster import ClusterServers
from ..testing.server import Server, eventually
from .worker import send_signal

#: The doors. The lock is a RedisLock for "threads" and "cluster", an AsyncRedisLock for the names
#: with "asyncio", and a OneFileLock for "one_file".
LOCK_KINDS = ["threads", "asyncio", "cluster", "cluster-asyncio", "one_file"]
#: The name of the lock for which the processes contend.
LOCK_NAME = "stress"
PROCESS_COUNT = 3
THREADS_PER_PROCESS = 8
TASKS_PER_PROCESS = 60
TTL_SECONDS = 1.0
#: The longest time for which the lock may be unused without being reported. The holder may be
#: stopped for two ttls, and after that a lost lease must expire. The rest is for a busy machine.
LONGEST_GAP_SECONDS = 5.0
#: A contender chooses one of these waits at random: a single try, a wait that may be too short to
#: acquire the lock, or a wait that should always be long enough.
WAITS_SECONDS = [0.0, 0.02, 0.3, 60.0, 60.0]
#: A contender chooses one of these times at random, and holds the lock for that time.
HOLDS_SECONDS = [0.0, 0.0, 0.001, 0.005]
#: The errors that a contender may get because of the disturbances, or at the end of a short wait.
EXPECTED_ERRORS = (LockError, one_file.LockTimeout, one_file.LockLost, redis.RedisError)
#: Set when this process has contended for long enough.
stop_event = threading.Event()


class FencedCounter:
    """A counter in another server than the lock. It refuses writes with a stale fence.

    A fence is stale if a higher fence has claimed the counter.
    """

    #: KEYS: highest fence, counter. ARGV: fence. Return the counter, or nil for a stale fence.
    CLAIM_SCRIPT = """
    if tonumber(ARGV[1]) <= tonumber(redis.call('get', KEYS[1]) or 0) then return false end
    redis.call('set', KEYS[1], ARGV[1])
    return tonumber(redis.call('get', KEYS[2]) or 0)
    """
    #: KEYS: highest fence, counter, number of writes. ARGV: fence, new value of the counter.
    WRITE_SCRIPT = """
    if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('set', KEYS[2], ARGV[2])
    return redis.call('incr', KEYS[3])
    """

    def __init__(self, port: int) -> None:
        self._client = redis.Redis(port=port)
        self._claim = self._client.register_script(self.CLAIM_SCRIPT)
        self._write = self._client.register_script(self.WRITE_SCRIPT)

    def claim(self, fence: int) -> int | None:
        """Record the fence as the highest, and return the counter. None: the fence is stale."""
        count: int | None = self._claim(["fence", "counter"], [fence])
        return count

    def write(self, fence: int, count: int) -> None:
        """Set the counter to `count`, unless a higher fence has claimed it meanwhile."""
        self._write(["fence", "counter", "writes"], [fence, count])

    def read_totals(self) -> tuple[int, int]:
        """Return the counter and the number of accepted writes.

        Each write adds 1. So the two numbers differ if a write overwrote the effect of another.
        """
        counter, writes = self._client.mget("counter", "writes")
        return int(counter or 0), int(writes or 0)


class HistoryWriter:
    """Appends events to the history file, to which all contending processes append."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **event: Any) -> None:
        """Append an event as one line of JSON."""
        os.write(self._file, json.dumps(event).encode() + b"\n")

    def check_and_record(self, lease: Any) -> None:
        """Check the lease, and append an event that the check passed.

        If the lease is lost, raise LockLost, and append nothing.
        """
        at = time.monotonic()
        lease.check()
        self.write(token=lease.token, fence=lease.fence, at=at)


def start_contender(
    lock_kind: str,
    port: int,
    *,
    ttl: float,
    seconds: float,
    history: Path,
    counter_port: int | None = None,
) -> BaseProcess:
    """Start a process that acquires the lock repeatedly, for `seconds` or until SIGTERM.

    Args:
        lock_kind: One of LOCK_KINDS.
        port: The port of the server, or of a node of the cluster.
        ttl: The ttl of the lock.
        seconds: The time after which the process ends.
        history: The file of the history.
        counter_port: The port of the server with the FencedCounter. None: there is no counter.
    """
    process = multiprocessing.get_context("spawn").Process(
        target=contend, args=(lock_kind, port, ttl, seconds, history, counter_port), daemon=True
    )
    process.start()
    return process


def contend(
    lock_kind: str, port: int, ttl: float, seconds: float, history: Path, counter_port: int | None
) -> None:
    """Acquire the lock repeatedly in threads or tasks, for `seconds` or until SIGTERM.

    At the end append to the history how many waiters, leases and the like this process has left.
    The process that start_contender() starts executes this function.
    """
    logging.disable(logging.WARNING)  # the disturbances cause many warnings
    signal.signal(signal.SIGTERM, lambda *_: stop_event.set())
    timer = threading.Timer(seconds, stop_event.set)
    timer.daemon = True
    timer.start()
    writer = HistoryWriter(history)
    counter = None if counter_port is None else FencedCounter(counter_port)
    build_ready_path(history, os.getpid()).touch()
    if "asyncio" in lock_kind:
        leftovers = asyncio.run(contend_in_tasks(lock_kind, port, ttl, writer, counter))
    else:
        leftovers = contend_in_threads(lock_kind, port, ttl, writer, counter)
    writer.write(left=leftovers)


def build_ready_path(history: Path, pid: int | None) -> Path:
    """Return the path of the file that a process creates when it begins to contend."""
    return history.with_name(f"ready-{pid}")


def make_client(lock_kind: str, port: int, ttl: float) -> Any:
    """Return the client for this kind of lock. For a OneFileLock it is the one in README.md."""
    if lock_kind == "one_file":
        return redis.Redis(port=port, socket_timeout=ttl / 6, retry=Retry(NoBackoff(), 1))
    module: Any = redis.asyncio if "asyncio" in lock_kind else redis
    if "cluster" in lock_kind:
        return module.RedisCluster(host="127.0.0.1", port=port, socket_timeout=2)
    return module.Redis(port=port, socket_timeout=2)


def read_counter_under_fence(
    lease: Any, writer: HistoryWriter, counter: FencedCounter | None
) -> int | None:
    """Check the lease, and read the counter, which then refuses writes with an older fence.

    Returns:
        The count. None: the counter has seen a newer fence, or there is no counter.
    """
    writer.check_and_record(lease)
    return None if counter is None else counter.claim(lease.fence)


def increment_counter(
    lease: Any, writer: HistoryWriter, counter: FencedCounter | None, count: int | None
) -> None:
    """Check the lease, and set the counter to `count` + 1.

    `count` is the result of read_counter_under_fence(). If it is None, only check the lease.
    """
    writer.check_and_record(lease)
    if counter is not None and count is not None:
        counter.write(lease.fence, count + 1)
        writer.check_and_record(lease)


def contend_in_thread(
    lock: Any, writer: HistoryWriter, counter: FencedCounter | None, rng: random.Random
) -> None:
    """Hold the lock repeatedly, and add 1 to the counter each time, until `stop_event` is set."""
    while not stop_event.is_set():
        try:
            with lock.hold(wait=rng.choice(WAITS_SECONDS)) as lease:
                count = read_counter_under_fence(lease, writer, counter)
                time.sleep(rng.choice(HOLDS_SECONDS))
                increment_counter(lease, writer, counter, count)
        except EXPECTED_ERRORS:
            time.sleep(0.01)


def contend_in_threads(
    lock_kind: str, port: int, ttl: float, writer: HistoryWriter, counter: FencedCounter | None
) -> dict[str, int]:
    """Contend in threads. Return how many waiters, leases and the like are left afterwards."""
    client = make_client(lock_kind, port, ttl)
    lock: Any
    if lock_kind == "one_file":
        lock = one_file.OneFileLock(client, LOCK_NAME, ttl=ttl)
    else:
        lock = RedisLock(client, LOCK_NAME, ttl=ttl)
    rngs = [random.Random(f"{os.getpid()}-{number}") for number in range(THREADS_PER_PROCESS)]
    with ThreadPoolExecutor(THREADS_PER_PROCESS) as pool:
        # map() raises the exception of a thread only when its result is read, as list() does.
        list(pool.map(lambda rng: contend_in_thread(lock, writer, counter, rng), rngs))
    if lock_kind == "one_file":
        return count_leftovers(count_renewing_threads, within=ttl + 5)
    return count_leftovers(
        lambda: count_waiters_and_leases(lock._wakeups.waiters, lock._watchdog), within=ttl + 5
    )


async def contend_in_task(
    lock: AsyncRedisLock,
    writer: HistoryWriter,
    counter: FencedCounter | None,
    rng: random.Random,
) -> None:
    """Hold the lock repeatedly, and add 1 to the counter each time, until `stop_event` is set.

    Timeouts of random length cancel the task while it waits for the lock or holds it.
    """
    while not stop_event.is_set():
        try:
            async with asyncio.timeout(rng.choice([None, None, None, 0.01, 0.1, 0.5])):
                wait = rng.choice(WAITS_SECONDS)
                async with lock.hold(wait=wait, cancel_on_loss=rng.random() < 0.5) as lease:
                    count = read_counter_under_fence(lease, writer, counter)
                    await asyncio.sleep(rng.choice(HOLDS_SECONDS))
                    increment_counter(lease, writer, counter, count)
        except (*EXPECTED_ERRORS, TimeoutError):
            await asyncio.sleep(0.01)


async def contend_in_tasks(
    lock_kind: str, port: int, ttl: float, writer: HistoryWriter, counter: FencedCounter | None
) -> dict[str, int]:
    """Contend in tasks. Return how many waiters, leases and the like are left afterwards."""
    client = make_client(lock_kind, port, ttl)
    lock = AsyncRedisLock(client, LOCK_NAME, ttl=ttl)
    rngs = [random.Random(f"{os.getpid()}-{number}") for number in range(TASKS_PER_PROCESS)]
    await asyncio.gather(*(contend_in_task(lock, writer, counter, rng) for rng in rngs))
    resources = await lock._get_resources()
    leftovers = await asyncio.to_thread(
        count_leftovers,
        lambda: count_waiters_and_leases(resources.wakeups.waiters, resources.watchdog),
        within=ttl + 5,
    )
    await client.aclose()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return leftovers | {"tasks": sum("locks" not in task.get_name() for task in tasks)}


def count_waiters_and_leases(waiters: Any, watchdog: Any) -> dict[str, int]:
    """Count the waiters, the renewed leases and the abandoned tokens of a lock in this process.

    A token is abandoned if the release of its lease got no reply. The watchdog repeats the release.
    """
    watchdogs = [watchdog]
    if isinstance(watchdog, ClusterNodes):
        watchdogs = [node.watchdog for node in watchdog.list_nodes()]
    return {
        "waiters": len(waiters.mailboxes),
        "leases": sum(len(node_watchdog.renewals) for node_watchdog in watchdogs),
        "abandoned": sum(len(node_watchdog.abandoned) for node_watchdog in watchdogs),
    }


def count_renewing_threads() -> dict[str, int]:
    """Count the threads in which one_file.py renews leases."""
    return {"threads": sum(thread.name == "locks.one_file" for thread in threading.enumerate())}


def count_leftovers(count: Callable[[], dict[str, int]], within: float) -> dict[str, int]:
    """Call `count` until all its counts are 0, for at most `within` seconds.

    Args:
        count: Counts the waiters, leases, threads and the like of this process.
        within: Seconds.

    Returns:
        The counts of the last call. If one is not 0, the lock has left something behind.
    """
    end = time.monotonic() + within
    while True:
        counts = count()
        if not any(counts.values()) or time.monotonic() > end:
            return counts
        time.sleep(0.1)


# --- the checker ----------------------------------------------------------------------------------


def read_history(history: Path) -> list[dict[str, Any]]:
    """Return the events of the history."""
    return [json.loads(line) for line in history.read_text().splitlines()]


class Hold(NamedTuple):
    """The use of one lease: its fence, and the times of its first and last check that passed."""

    fence: int
    first_check_at: float
    last_check_at: float


def list_holds(events: Sequence[dict[str, Any]]) -> list[Hold]:
    """Return a Hold for each lease in the history, in the order of their first checks."""
    holds_by_token: dict[str, Hold] = {}
    for event in events:
        if "fence" in event:
            token, fence, at = event["token"], event["fence"], event["at"]
            hold = holds_by_token.get(token, Hold(fence, at, at))
            holds_by_token[token] = Hold(
                fence, min(hold.first_check_at, at), max(hold.last_check_at, at)
            )
    return sorted(holds_by_token.values(), key=attrgetter("first_check_at", "last_check_at"))


def find_violations(events: Sequence[dict[str, Any]]) -> list[str]:
    """Compare each lease with the next one, in the order of their first checks.

    Returns:
        A message for each lease that overlaps the next one, and for each fence that is not higher
        than the one before.
    """
    violations = []
    for hold, next_hold in itertools.pairwise(list_holds(events)):
        if next_hold.first_check_at <= hold.last_check_at:
            violations.append(
                f"the lease with fence {hold.fence} was valid until {hold.last_check_at}, but the"
                f" lease with fence {next_hold.fence} was valid from {next_hold.first_check_at}"
            )
        if next_hold.fence <= hold.fence:
            violations.append(
                f"the fence {next_hold.fence} follows {hold.fence}, but must be higher"
            )
    return violations


def judge(events: Sequence[dict[str, Any]], counter: int = 0, writes: int = 0) -> dict[str, Any]:
    """Return a summary of a run. Its "wrong" is a list of messages, one for each failed check.

    Args:
        events: The history.
        counter: The counter at the end.
        writes: The number of writes that incremented the counter.
    """
    holds = list_holds(events)
    wrong = find_violations(events)
    gaps = [
        next_hold.first_check_at - hold.last_check_at
        for hold, next_hold in itertools.pairwise(holds)
    ]
    longest_gap = max(gaps, default=0.0)
    if longest_gap > LONGEST_GAP_SECONDS:
        wrong.append(f"the lock was not used for {longest_gap:.2f} s although many waited")
    leftovers = [event["left"] for event in events if "left" in event]
    wrong += [f"left behind: {counts}" for counts in leftovers if any(counts.values())]
    if len(leftovers) < PROCESS_COUNT:
        wrong.append(f"{PROCESS_COUNT - len(leftovers)} processes did not end by themselves")
    if counter != writes:
        wrong.append(f"the counter is {counter} after {writes} writes")
    return {
        "holds": len(holds),
        "writes": writes,
        "longest_gap_s": round(longest_gap, 3),
        "wrong": wrong,
    }


# --- the disturbances -----------------------------------------------------------------------------


class StressRun:
    """One run of the stress test: its servers, its contending processes, and its disturbances."""

    def __init__(self, lock_kind: str, seconds: float, folder: Path, seed: int) -> None:
        self.lock_kind = lock_kind
        self.history = folder / "history.jsonl"
        self.rng = random.Random(seed)
        self.ends_at = time.monotonic() + seconds
        self.faults: Counter[str] = Counter()
        self.cluster = ClusterServers() if "cluster" in lock_kind else None
        self.nodes = self.cluster.nodes if self.cluster else [Server()]
        self.counter_server = Server()
        self.processes: list[BaseProcess] = []

    def run(self) -> dict[str, Any]:
        """Disturb the servers and processes until the end, and return the summary of the run."""
        for _ in range(PROCESS_COUNT):
            self.processes.append(self.start_process())
        # The keys appear in the printed results. Redis calls connections with a subscription
        # "pubsub", and other connections of clients "normal".
        disturbances = {
            "kill": self._kill_process,
            "stop": self._stop_process,
            "freeze": self._stop_server,
            "pause": self._pause_clients,
            "scripts": self._flush_scripts,
            "pubsub": self._cut_subscriptions,
            "normal": self._cut_other_connections,
        }
        twice_as_often = ["kill", "stop"]
        if self.cluster:
            disturbances["move"] = self._move_slot
            twice_as_often.append("move")
        while time.monotonic() < self.ends_at:
            time.sleep(self.rng.uniform(0.3, 1.0))
            name = self.rng.choice([*disturbances, *twice_as_often])
            disturbances[name]()
            self.faults[name] += 1
        for process in self.processes:
            process.join(90)  # longer than the longest wait for the lock, 60 s
        counter, writes = FencedCounter(self.counter_server.port).read_totals()
        return {
            **judge(read_history(self.history), counter, writes),
            "faults": dict(self.faults),
        }

    def start_process(self) -> BaseProcess:
        """Start a process that contends for the lock until the end of the run."""
        return start_contender(
            self.lock_kind,
            self.nodes[0].port,
            ttl=TTL_SECONDS,
            seconds=max(1.0, self.ends_at - time.monotonic()),
            history=self.history,
            counter_port=self.counter_server.port,
        )

    def describe_stuck_lock(self) -> list[str]:
        """Return a list with a message if the lock cannot be acquired, or else an empty list."""
        client = make_client(
            "cluster" if self.cluster else "threads", self.nodes[0].port, TTL_SECONDS
        )
        try:
            RedisLock(client, LOCK_NAME, ttl=TTL_SECONDS).acquire(10).release()
        except LockError as error:
            return [f"the lock was not free at the end: {error}"]
        finally:
            client.close()
        return []

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.join(10)
        for server in [*self.nodes, self.counter_server]:
            server.stop()

    def _kill_process(self) -> None:
        """Kill a process by SIGKILL, and start another one in its place.

        Before that, wait until all processes contend for the lock. If all of them were still
        starting, the lock would be unused for long, and judge() would report that.
        """
        eventually(self._are_all_contending, within=60)
        victim = self.rng.randrange(PROCESS_COUNT)
        self.processes[victim].kill()
        self.processes[victim].join(10)
        self.processes[victim] = self.start_process()

    def _are_all_contending(self) -> bool:
        """Return whether every process has begun to contend for the lock."""
        return all(
            build_ready_path(self.history, process.pid).exists() for process in self.processes
        )

    def _stop_process(self) -> None:
        """Suspend a process by SIGSTOP for at most two ttls."""
        victim = self.rng.choice(self.processes)
        send_signal(victim, signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.1, 2 * TTL_SECONDS))
        send_signal(victim, signal.SIGCONT)

    def _stop_server(self) -> None:
        """Suspend a server by SIGSTOP for at most half a ttl."""
        server = self.rng.choice(self.nodes)
        server.signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.05, TTL_SECONDS / 2))
        server.signal(signal.SIGCONT)

    def _pause_clients(self) -> None:
        """Stop each server from answering its clients, for at most half a second."""
        milliseconds = self.rng.randrange(50, 500)
        self._disturb_each_node(lambda client: client.client_pause(milliseconds))

    def _flush_scripts(self) -> None:
        self._disturb_each_node(lambda client: client.script_flush())

    def _cut_subscriptions(self) -> None:
        self._disturb_each_node(lambda client: client.client_kill_filter(_type="pubsub"))

    def _cut_other_connections(self) -> None:
        self._disturb_each_node(
            lambda client: client.client_kill_filter(_type="normal", skipme=True)
        )

    def _move_slot(self) -> None:
        """Move the lock's slot to another node."""
        assert self.cluster is not None
        slot = compute_slot(derive_keys(LOCK_NAME)[0])
        owner = self.cluster.find_primary(slot)
        other_nodes = [node for node in self.nodes if node is not owner]
        self.cluster.move(slot, self.rng.choice(other_nodes))

    def _disturb_each_node(self, disturb: Callable[[redis.Redis], object]) -> None:
        """Call `disturb` with a client of each node, and ignore the errors of stopped nodes."""
        for node in self.nodes:
            with suppress(redis.RedisError), redis.Redis(port=node.port) as client:
                disturb(client)


def run(lock_kind: str, seconds: float, seed: int = 1) -> dict[str, Any]:
    """Stress one kind of lock, and return what the program prints for it."""
    with tempfile.TemporaryDirectory() as folder:
        stress = StressRun(lock_kind, seconds, Path(folder), seed)
        try:
            summary = stress.run()
            summary["wrong"] += stress.describe_stuck_lock()
            return {"door": lock_kind, "seconds": seconds, "seed": seed, **summary}
        finally:
            stress.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m locks.tests.stress", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--door",
        choices=LOCK_KINDS,
        action="append",
        help="a kind of lock with its kind of server; repeatable; all of them if omitted",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for each kind of lock")
    parser.add_argument("--seed", type=int, default=1, help="seed of the disturbances")
    options = parser.parse_args()
    # SIGTERM would end the program at once. SystemExit lets run() stop its processes and servers.
    # A shell reports the same exit code for SIGTERM: 128 + 15.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    is_wrong = False
    for lock_kind in options.door or LOCK_KINDS:
        summary = run(lock_kind, options.seconds, options.seed)
        print(json.dumps(summary), flush=True)
        is_wrong = is_wrong or bool(summary["wrong"])
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
