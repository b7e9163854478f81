"""A stress of every door, with an outside checker: python -m locks.tests.stress --help

Some processes contend for one lock while they are killed and stopped, connections are cut, scripts
are forgotten, the server is paused and, in a cluster, the lock's slot moves to and fro. Each holder
writes down when a check of its lease passed, and adds 1 to a counter in a second server, which
refuses stale fences. Then the history is judged:

- no two leases were good at once, and no fence fell or came twice;
- the counter is what was added to it;
- the lock was never free for long although many waited for it;
- no process hung, or has waiters, leases, threads or tasks left at its end;
- the lock can be taken at the end.

The history has one JSON object per line: {"token", "fence", "at"}, the monotonic second just before
a check that passed; and from each process at its end {"left"}, what is left in it. A line is
written before anything else happens, so that those of a killed holder are there.

Prints the results as JSON, one line for each door. The exit code is 1 if anything is wrong.
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
from operator import itemgetter
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import AsyncRedisLock, LockError, RedisLock, one_file
from ..cluster.slots import slot_of
from ..sans_io.protocol import derive_keys
from ..testing.cluster import ClusterServers
from ..testing.server import Server, eventually
from .worker import send_signal

DOORS = ["threads", "asyncio", "cluster", "cluster-asyncio", "one_file"]
NAME = "stress"
PROCESSES = 3
THREADS_PER_PROCESS = 8
TASKS_PER_PROCESS = 60
TTL_SECONDS = 1.0
#: How long the lock may be free, or be a dead or stopped process's, while others wait.
LONGEST_GAP_SECONDS = 5.0
#: Tries, short waits that end in the queue, and waits that must be served.
WAITS_SECONDS = [0.0, 0.02, 0.3, 60.0, 60.0]
HOLDS_SECONDS = [0.0, 0.0, 0.001, 0.005]
LOSSES = (LockError, one_file.LockTimeout, one_file.LockLost, redis.RedisError)
#: Set when the time of this process is over.
is_over = threading.Event()


class Counting:
    """The counter in the second server: read, and later written, by the holder of a fence."""

    #: KEYS: highest fence, counter. ARGV: fence. Return the counter, or nil for a stale fence.
    CLAIM = """
    if tonumber(ARGV[1]) <= tonumber(redis.call('get', KEYS[1]) or 0) then return false end
    redis.call('set', KEYS[1], ARGV[1])
    return tonumber(redis.call('get', KEYS[2]) or 0)
    """
    #: KEYS: highest fence, counter, number of writes. ARGV: fence, new value of the counter.
    WRITE = """
    if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('set', KEYS[2], ARGV[2])
    return redis.call('incr', KEYS[3])
    """

    def __init__(self, port: int) -> None:
        self._client = redis.Redis(port=port)
        self._claim = self._client.register_script(self.CLAIM)
        self._write = self._client.register_script(self.WRITE)

    def read(self, fence: int) -> int | None:
        value: int | None = self._claim(["fence", "counter"], [fence])
        return value

    def write(self, fence: int, value: int) -> None:
        self._write(["fence", "counter", "writes"], [fence, value])

    def totals(self) -> tuple[int, int]:
        """Return the counter and the number of writes, which are equal unless one was lost."""
        counter, writes = self._client.mget("counter", "writes")
        return int(counter or 0), int(writes or 0)


class Book:
    """The history, to which all processes append."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **event: Any) -> None:
        os.write(self._file, json.dumps(event).encode() + b"\n")

    def check(self, lease: Any) -> None:
        """Check the lease, and write down when it was good. Raises LockLost."""
        at = time.monotonic()
        lease.check()
        self.write(token=lease.token, fence=lease.fence, at=at)


def start(
    door: str,
    port: int,
    ttl: float,
    seconds: float,
    history: Path,
    counter_port: int | None = None,
) -> BaseProcess:
    """Start a process that takes the lock again and again. SIGTERM ends it before its time."""
    process = multiprocessing.get_context("spawn").Process(
        target=contend, args=(door, port, ttl, seconds, history, counter_port), daemon=True
    )
    process.start()
    return process


def contend(
    door: str, port: int, ttl: float, seconds: float, history: Path, counter_port: int | None
) -> None:
    """Take the lock in threads or tasks of this process until the time is over."""
    logging.disable(logging.WARNING)  # there is a lot to warn about
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    timer = threading.Timer(seconds, is_over.set)
    timer.daemon = True
    timer.start()
    book = Book(history)
    counting = None if counter_port is None else Counting(counter_port)
    ready_file(history, os.getpid()).touch()
    if "asyncio" in door:
        remains = asyncio.run(contend_in_tasks(door, port, ttl, book, counting))
    else:
        remains = contend_in_threads(door, port, ttl, book, counting)
    book.write(left=remains)


def ready_file(history: Path, pid: int | None) -> Path:
    """Return the file that exists once the process with this id contends."""
    return history.with_name(f"ready-{pid}")


def make_client(door: str, port: int, ttl: float) -> Any:
    if door == "one_file":
        return redis.Redis(port=port, socket_timeout=ttl / 6, retry=Retry(NoBackoff(), 1))
    module: Any = redis.asyncio if "asyncio" in door else redis
    if "cluster" in door:
        return module.RedisCluster(host="127.0.0.1", port=port, socket_timeout=2)
    return module.Redis(port=port, socket_timeout=2)


def read_counter(lease: Any, book: Book, counting: Counting | None) -> int | None:
    book.check(lease)
    return None if counting is None else counting.read(lease.fence)


def write_counter(lease: Any, book: Book, counting: Counting | None, value: int | None) -> None:
    book.check(lease)
    if counting is not None and value is not None:
        counting.write(lease.fence, value + 1)
        book.check(lease)


def contend_in_thread(
    lock: Any, book: Book, counting: Counting | None, chance: random.Random
) -> None:
    while not is_over.is_set():
        try:
            with lock.hold(wait=chance.choice(WAITS_SECONDS)) as lease:
                value = read_counter(lease, book, counting)
                time.sleep(chance.choice(HOLDS_SECONDS))
                write_counter(lease, book, counting, value)
        except LOSSES:
            time.sleep(0.01)


def contend_in_threads(
    door: str, port: int, ttl: float, book: Book, counting: Counting | None
) -> dict[str, int]:
    client = make_client(door, port, ttl)
    lock: Any = (one_file.OneFileLock if door == "one_file" else RedisLock)(client, NAME, ttl=ttl)
    chances = [random.Random(f"{os.getpid()}-{number}") for number in range(THREADS_PER_PROCESS)]
    with ThreadPoolExecutor(THREADS_PER_PROCESS) as pool:
        list(pool.map(lambda chance: contend_in_thread(lock, book, counting, chance), chances))
    if door == "one_file":
        return count_remains(count_renewing_threads, ttl + 5)
    return count_remains(lambda: count_parts(lock._wakeups.waiters, lock._watchdog), ttl + 5)


async def contend_in_task(
    lock: AsyncRedisLock, book: Book, counting: Counting | None, chance: random.Random
) -> None:
    while not is_over.is_set():
        try:
            # Cancelled at any moment, in the queue or in the block.
            async with asyncio.timeout(chance.choice([None, None, None, 0.01, 0.1, 0.5])):
                wait = chance.choice(WAITS_SECONDS)
                async with lock.hold(wait=wait, cancel_on_loss=chance.random() < 0.5) as lease:
                    value = read_counter(lease, book, counting)
                    await asyncio.sleep(chance.choice(HOLDS_SECONDS))
                    write_counter(lease, book, counting, value)
        except (*LOSSES, TimeoutError):
            await asyncio.sleep(0.01)


async def contend_in_tasks(
    door: str, port: int, ttl: float, book: Book, counting: Counting | None
) -> dict[str, int]:
    client = make_client(door, port, ttl)
    lock = AsyncRedisLock(client, NAME, ttl=ttl)
    chances = [random.Random(f"{os.getpid()}-{number}") for number in range(TASKS_PER_PROCESS)]
    await asyncio.gather(*(contend_in_task(lock, book, counting, chance) for chance in chances))
    shared = await lock._here()
    remains = await asyncio.to_thread(
        count_remains, lambda: count_parts(shared.wakeups.waiters, shared.watchdog), ttl + 5
    )
    await client.aclose()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return remains | {"tasks": sum("locks" not in task.get_name() for task in tasks)}


def count_parts(waiters: Any, renewals: Any) -> dict[str, int]:
    nodes = [node.watchdog for node in renewals.all()] if hasattr(renewals, "all") else [renewals]
    return {
        "waiters": len(waiters.mailboxes),
        "leases": sum(len(node.renewals) for node in nodes),
        "abandoned": sum(len(node.abandoned) for node in nodes),
    }


def count_renewing_threads() -> dict[str, int]:
    return {"threads": sum(thread.name == "locks.one_file" for thread in threading.enumerate())}


def count_remains(count: Callable[[], dict[str, int]], within: float) -> dict[str, int]:
    """Return the counts once all are 0, or those after this many seconds."""
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


def list_holds(events: Sequence[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """Return each lease's fence, first and last good moment, in the order of the first ones."""
    spans: dict[str, tuple[int, float, float]] = {}
    for event in events:
        if "fence" in event:
            token, fence, at = event["token"], event["fence"], event["at"]
            _, first, last = spans.get(token, (fence, at, at))
            spans[token] = fence, min(first, at), max(last, at)
    return sorted(spans.values(), key=itemgetter(1, 2))


def find_overlaps(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return the leases that were good at once, and the fences that did not rise."""
    violations = []
    for (fence, _, last), (later, first, _) in itertools.pairwise(list_holds(events)):
        if first <= last:
            violations.append(f"{fence} was good until {last}, {later} from {first}")
        if later <= fence:
            violations.append(f"the fence fell from {fence} to {later}")
    return violations


def judge(events: Sequence[dict[str, Any]], counter: int = 0, writes: int = 0) -> dict[str, Any]:
    """Return what the history shows. The list under "wrong" should be empty."""
    order = list_holds(events)
    wrong = find_overlaps(events)
    gap = max((new[1] - old[2] for old, new in itertools.pairwise(order)), default=0.0)
    if gap > LONGEST_GAP_SECONDS:
        wrong.append(f"the lock was not used for {gap:.2f} s although many waited")
    remains = [event["left"] for event in events if "left" in event]
    wrong += [f"left behind: {counts}" for counts in remains if any(counts.values())]
    if len(remains) < PROCESSES:
        wrong.append(f"{PROCESSES - len(remains)} processes did not end by themselves")
    if counter != writes:
        wrong.append(f"the counter is {counter} after {writes} writes")
    return {"holds": len(order), "writes": writes, "longest_gap_s": round(gap, 3), "wrong": wrong}


# --- the disturbances -----------------------------------------------------------------------------


class Stress:
    """One run: the servers, the contending processes, and the faults."""

    def __init__(self, door: str, seconds: float, folder: Path, seed: int) -> None:
        self.door = door
        self.history = folder / "history.jsonl"
        self.chance = random.Random(seed)
        self.end = time.monotonic() + seconds
        self.faults: Counter[str] = Counter()
        self.cluster = ClusterServers() if "cluster" in door else None
        self.nodes = self.cluster.nodes if self.cluster else [Server()]
        self.counter_server = Server()
        self.processes: list[BaseProcess] = []

    def run(self) -> dict[str, Any]:
        """Stress the lock until the end, and judge its history."""
        for _ in range(PROCESSES):
            self.processes.append(self.start())
        disturbances = {
            "kill": self._kill,
            "stop": self._stop,
            "freeze": self._freeze,
            "pause": self._pause,
            "scripts": self._scripts,
            "pubsub": self._pubsub,
            "normal": self._normal,
        }
        if self.cluster:
            disturbances["move"] = self._move
        often = ["kill", "stop", *(["move"] if self.cluster else [])]
        while time.monotonic() < self.end:
            time.sleep(self.chance.uniform(0.3, 1.0))
            name = self.chance.choice([*disturbances, *often])
            disturbances[name]()
            self.faults[name] += 1
        for process in self.processes:
            process.join(90)
        return {
            **judge(read_history(self.history), *Counting(self.counter_server.port).totals()),
            "faults": dict(self.faults),
        }

    def start(self) -> BaseProcess:
        seconds = max(1.0, self.end - time.monotonic())
        port = self.nodes[0].port
        return start(self.door, port, TTL_SECONDS, seconds, self.history, self.counter_server.port)

    def check_free(self) -> list[str]:
        """Return what is wrong if the lock cannot be taken at the end."""
        client = make_client("cluster" if self.cluster else "threads", self.nodes[0].port, 1)
        try:
            RedisLock(client, NAME, ttl=TTL_SECONDS).acquire(10).release()
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

    def _kill(self) -> None:
        """Send SIGKILL to a process and start another one, but only while all processes contend.

        A gap in which all processes are starting would show nothing about the lock.
        """
        eventually(self._all_contend, within=60)
        victim = self.chance.randrange(PROCESSES)
        self.processes[victim].kill()
        self.processes[victim].join(10)
        self.processes[victim] = self.start()

    def _all_contend(self) -> bool:
        return all(ready_file(self.history, process.pid).exists() for process in self.processes)

    def _stop(self) -> None:
        """SIGSTOP a process, for up to 2 ttls."""
        victim = self.chance.choice(self.processes)
        send_signal(victim, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.1, 2 * TTL_SECONDS))
        send_signal(victim, signal.SIGCONT)

    def _freeze(self) -> None:
        """SIGSTOP a server, for half a ttl at most."""
        server = self.chance.choice(self.nodes)
        server.signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.05, TTL_SECONDS / 2))
        server.signal(signal.SIGCONT)

    def _pause(self) -> None:
        milliseconds = self.chance.randrange(50, 500)
        self._on_each_node(lambda client: client.client_pause(milliseconds))

    def _scripts(self) -> None:
        self._on_each_node(lambda client: client.script_flush())

    def _pubsub(self) -> None:
        self._on_each_node(lambda client: client.client_kill_filter(_type="pubsub"))

    def _normal(self) -> None:
        self._on_each_node(lambda client: client.client_kill_filter(_type="normal", skipme=True))

    def _move(self) -> None:
        """Move the lock's slot to another node."""
        assert self.cluster is not None
        slot = slot_of(derive_keys(NAME)[0])
        owner = self.cluster.owner(slot)
        other_nodes = [node for node in self.nodes if node is not owner]
        self.cluster.move(slot, self.chance.choice(other_nodes))

    def _on_each_node(self, disturb: Callable[[redis.Redis], object]) -> None:
        for node in self.nodes:
            with suppress(redis.RedisError), redis.Redis(port=node.port) as client:
                disturb(client)


def run(door: str, seconds: float, seed: int = 1) -> dict[str, Any]:
    """Run one stress, from start to judgement."""
    with tempfile.TemporaryDirectory() as folder:
        stress = Stress(door, seconds, Path(folder), seed)
        try:
            summary = stress.run()
            summary["wrong"] += stress.check_free()
            return {"door": door, "seconds": seconds, "seed": seed, **summary}
        finally:
            stress.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m locks.tests.stress", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--door", choices=DOORS, action="append", help="all unless given")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each door")
    parser.add_argument("--seed", type=int, default=1, help="of the disturbances")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and stop the servers on the way
    is_wrong = False
    for door in options.door or DOORS:
        summary = run(door, options.seconds, options.seed)
        print(json.dumps(summary), flush=True)
        is_wrong = is_wrong or bool(summary["wrong"])
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
