"""Everything at once for a long time: python -m locks.bench.stress --door asyncio --seconds 600

Three processes contend for one lock while subscriptions and connections are cut, scripts forgotten
and, in a cluster, the lock's slot moved to and fro. Then the history is judged: no two leases are
good at once, no fence falls or comes twice, nobody waits for longer than the ttl and one second
while nobody holds the lock, and nothing is left behind.

The history has one JSON object per line: {"token", "fence", "at"}, the monotonic second just
before a check that passed; and from each process at its end {"left"}, what is left in it of
waiters, leases and tokens to clean up. A line is written before anything else happens, so that a
killed holder's are there.

Prints the findings as JSON. The exit code is 1 if anything is wrong.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.process import BaseProcess
from operator import itemgetter
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from .. import AsyncRedisLock, LockError, RedisLock
from ..cluster.slots import slot_of
from ..protocol import keys_of
from ..testing.cluster import Cluster
from ..testing.server import Server

DOORS = ["threads", "asyncio", "cluster", "cluster-asyncio"]
PROCESSES = 3
THREADS = 8
TASKS = 60
#: Seconds.
TTL = 3.0
#: Waits, in seconds: tries, short ones that end in the queue, and those that must be served.
WAITS = [0.0, 0.02, 0.3, 60.0, 60.0]
HOLDS = [0.0, 0.0, 0.001, 0.005]
#: Set at the end.
over = threading.Event()


def start(door: str, port: int, ttl: float, seconds: float, history: Path) -> BaseProcess:
    """A process that takes the lock again and again. SIGTERM ends it before its time."""
    work = multiprocessing.get_context("spawn").Process(
        target=contend, args=(door, port, ttl, seconds, history), daemon=True
    )
    work.start()
    return work


def contend(door: str, port: int, ttl: float, seconds: float, history: Path) -> None:
    """In one of the processes: threads or tasks that take the lock, until the time is over."""
    logging.disable(logging.WARNING)  # there is a lot to warn about
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    ending = threading.Timer(seconds, over.set)
    ending.daemon = True
    ending.start()
    book = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if "asyncio" in door:
        found = asyncio.run(tasks(door, port, ttl, book))
    else:
        found = threads(door, port, ttl, book)
    note(book, left=found)


def client_of(door: str, port: int) -> Any:
    module: Any = redis.asyncio if "asyncio" in door else redis
    if "cluster" in door:
        return module.RedisCluster(host="127.0.0.1", port=port, socket_timeout=2)
    return module.Redis(port=port, socket_timeout=2)


def note(book: int, **event: Any) -> None:
    """Write one line of the history."""
    os.write(book, json.dumps(event).encode() + b"\n")


def check(book: int, lease: Any) -> None:
    """Write down when the lease was good. Raises LockLost."""
    at = time.monotonic()
    lease.check()
    note(book, token=lease.token, fence=lease.fence, at=at)


def in_thread(lock: RedisLock, book: int, chance: random.Random) -> None:
    while not over.is_set():
        try:
            with lock.hold(wait=chance.choice(WAITS)) as lease:
                check(book, lease)
                time.sleep(chance.choice(HOLDS))
                check(book, lease)
        except LockError:
            time.sleep(0.01)


async def in_task(lock: AsyncRedisLock, book: int, chance: random.Random) -> None:
    while not over.is_set():
        try:
            # Cancelled at any moment, in the queue or in the block.
            async with asyncio.timeout(chance.choice([None, None, None, 0.01, 0.1, 0.5])):
                wait = chance.choice(WAITS)
                async with lock.hold(wait=wait, cancel_on_loss=chance.random() < 0.5) as lease:
                    check(book, lease)
                    await asyncio.sleep(chance.choice(HOLDS))
                    check(book, lease)
        except (LockError, TimeoutError):
            await asyncio.sleep(0.01)


async def tasks(door: str, port: int, ttl: float, book: int) -> dict[str, int]:
    client = client_of(door, port)
    lock = AsyncRedisLock(client, "stress", ttl=ttl)
    chances = [random.Random(f"{os.getpid()}-{n}") for n in range(TASKS)]
    await asyncio.gather(*(in_task(lock, book, chance) for chance in chances))
    here = await lock._here()
    found = await asyncio.to_thread(left, here.wakeups.waiters, here.watchdog, ttl + 5)
    await client.aclose()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return found | {"tasks": sum("locks" not in task.get_name() for task in others)}


def threads(door: str, port: int, ttl: float, book: int) -> dict[str, int]:
    lock = RedisLock(client_of(door, port), "stress", ttl=ttl)
    chances = [random.Random(f"{os.getpid()}-{n}") for n in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda chance: in_thread(lock, book, chance), chances))
    return left(lock._wakeups.waiters, lock._watchdog, ttl + 5)


def left(waiters: Any, renewals: Any, within: float) -> dict[str, int]:
    """What is left once nobody wants the lock: nothing, within so many seconds."""
    end = time.monotonic() + within
    while True:
        of = [node.watchdog for node in renewals.all()] if hasattr(renewals, "all") else [renewals]
        found = {
            "waiters": len(waiters.mailboxes),
            "leases": sum(len(each.renewals) for each in of),
            "abandoned": sum(len(each.abandoned) for each in of),
        }
        if not any(found.values()) or time.monotonic() > end:
            return found
        time.sleep(0.1)


def read(history: Path) -> list[dict[str, Any]]:
    """The events of the history."""
    return [json.loads(line) for line in history.read_text().splitlines()]


def holds(events: Sequence[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """Each lease's fence, and its first and last good moment, in the order of the first ones."""
    spans: dict[str, tuple[int, float, float]] = {}
    for event in events:
        if "fence" in event:
            token, fence, at = event["token"], event["fence"], event["at"]
            _, first, last = spans.get(token, (fence, at, at))
            spans[token] = fence, min(first, at), max(last, at)
    return sorted(spans.values(), key=itemgetter(1, 2))


def overlaps(events: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with a history: two leases good at once, and fences that do not rise."""
    found = []
    for (fence, _, last), (later, first, _) in itertools.pairwise(holds(events)):
        if first <= last:
            found.append(f"{fence} was good until {last}, {later} from {first}")
        if later <= fence:
            found.append(f"the fence fell from {fence} to {later}")
    return found


def judge(events: Sequence[dict[str, Any]], ttl: float) -> dict[str, Any]:
    """What the history shows. The values under "wrong" should be empty."""
    order, wrong = holds(events), overlaps(events)
    gap = max((new[1] - old[2] for old, new in itertools.pairwise(order)), default=0.0)
    if gap > ttl + 1:
        wrong.append(f"nobody had the lock for {gap:.2f} s although many waited")
    rests = [event["left"] for event in events if "left" in event]
    wrong += [f"left behind: {each}" for each in rests if any(each.values())]
    if len(rests) != PROCESSES:
        wrong.append(f"{PROCESSES - len(rests)} processes did not end by themselves")
    return {"holds": len(order), "longest_gap_s": round(gap, 3), "wrong": wrong}


def disturb(nodes: list[Server], cluster: Cluster | None, until: float) -> int:
    """Faults until that second, about one each second. Returns how many."""
    chance, done, slot = random.Random(1), 0, slot_of(keys_of("stress")[0])
    while time.monotonic() < until:
        time.sleep(chance.uniform(0.5, 1.5))
        fault = chance.choice(["pubsub", "normal", "scripts", *(["move"] if cluster else [])])
        if fault == "move" and cluster is not None:
            here = cluster.owner(slot)
            cluster.move(slot, chance.choice([node for node in nodes if node is not here]))
        for node in nodes:
            with suppress(redis.RedisError):
                if fault == "scripts":
                    node.client().script_flush()
                elif fault != "move":
                    node.client().client_kill_filter(_type=fault, skipme=True)
        done += 1
    return done


def run(door: str, seconds: float) -> dict[str, Any]:
    """One stress, from start to judgement."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster() if "cluster" in door else None
        nodes = cluster.nodes if cluster else [Server()]
        history, port = Path(folder) / "history.jsonl", nodes[0].port
        workers = [start(door, port, TTL, seconds, history) for _ in range(PROCESSES)]
        try:
            faults = disturb(nodes, cluster, time.monotonic() + seconds)
            for worker in workers:
                worker.join(2 * TTL + 90)
            found = judge(read(history), TTL)
            client = client_of("cluster" if cluster else "threads", port)
            state = RedisLock(client, "stress", ttl=TTL).inspect()
            if state.owner or state.waiters:
                found["wrong"].append(f"the server still has {state}")
            client.close()
            return {"door": door, "seconds": seconds, "faults": faults, **found}
        finally:
            for worker in workers:
                worker.kill()
                worker.join(10)
            for server in nodes:
                server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m locks.bench.stress", description=__doc__)
    parser.add_argument("--door", choices=DOORS, action="append", help="all unless given")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each door")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and stop the servers on the way
    wrong = False
    for door in options.door or DOORS:
        found = run(door, options.seconds)
        print(json.dumps(found), flush=True)
        wrong = wrong or bool(found["wrong"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
