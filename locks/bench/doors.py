"""What asyncio and a cluster cost: a crowd of tasks in one process, and commands per acquisition.

    python -m locks.bench.doors <port> <waiters> <seconds>

runs the crowd in a process of its own, and prints what it found as JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from .. import AsyncRedisLock, LockTimeout, RedisLock
from ..testing.cluster import Cluster
from ..testing.process import LOCKS, ROOT
from ..testing.server import eventually

#: Seconds for which the crowd is watched while it waits: more than one renewal of its holder.
WATCHED = 20.0
TTL = 30.0


def crowd(port: int, waiters: int, seconds: float = WATCHED) -> dict[str, float]:
    """So many tasks of one process in one lock's queue: memory, CPU, and the order of the drain."""
    program = [sys.executable, "-m", f"{LOCKS}.bench.doors", *map(str, (port, waiters, seconds))]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def _crowd(port: int, waiters: int, seconds: float) -> dict[str, float]:
    client = redis.asyncio.Redis(port=port)
    lock = AsyncRedisLock(client, "crowd", ttl=TTL)
    order: list[int] = []

    async def wait(number: int) -> None:
        async with lock.hold(wait=600):
            order.append(number)

    holder = await lock.acquire(5)
    with suppress(LockTimeout):
        await lock.acquire(0.001)  # subscribed
    before = _resident()
    tasks = [asyncio.create_task(wait(number)) for number in range(waiters)]
    while len((await lock.inspect()).waiters) < waiters:
        await asyncio.sleep(0.2)
    memory = _resident() - before
    cpu, since = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    cpu = (time.process_time() - cpu) / (time.perf_counter() - since)
    opened = time.perf_counter()
    await holder.release()
    await asyncio.gather(*tasks)
    took = time.perf_counter() - opened
    await client.aclose()
    return {
        "bytes_per_waiter": memory / waiters,
        "cpu_percent_while_waiting": 100 * cpu,
        "drained_per_s": waiters / took,
        "out_of_order": sum(a > b for a, b in itertools.pairwise(order)),
    }


def _resident() -> int:
    """Bytes of memory that this process has now."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def cluster_beside_single(port: int, waiters: int = 100) -> dict[str, float]:
    """Commands per acquisition that reached the servers, free and with so many waiting threads."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            single = [redis.Redis(port=port)]
            nodes = [node.client() for node in cluster.nodes]
            clients: dict[str, tuple[Any, list[redis.Redis]]] = {
                "single": (single[0], single),
                "cluster": (redis.RedisCluster(host="127.0.0.1", port=cluster.port), nodes),
            }
            for kind, (client, servers) in clients.items():
                lock = RedisLock(client, "counted", ttl=TTL)
                lock.acquire(5).release()
                before = _commands(servers)
                for _ in range(waiters):
                    lock.acquire(5).release()
                found[f"{kind}_uncontended"] = (_commands(servers) - before) / waiters
                found[f"{kind}_contended"] = _contended(lock, servers, waiters)
                client.close()
        finally:
            cluster.stop()
    return found


def _contended(lock: RedisLock, servers: list[redis.Redis], waiters: int) -> float:
    def once() -> None:
        lock.acquire(60).release()

    holder = lock.acquire(5)
    before = _commands(servers)
    threads = [threading.Thread(target=once) for _ in range(waiters)]
    for thread in threads:
        thread.start()
    looks = 0
    while len(lock.inspect().waiters) < waiters:
        looks += 1
        time.sleep(0.05)
    holder.release()
    for thread in threads:
        thread.join()
    eventually(lambda: not lock.locked())
    return (_commands(servers) - before - looks - 3) / waiters


def _commands(servers: list[redis.Redis]) -> int:
    """The scripts, subscriptions and redirections that these servers have executed."""
    names = "evalsha", "eval", "subscribe", "ssubscribe", "asking", "cluster|slots"
    stats: list[dict[str, Any]] = [server.info("commandstats") for server in servers]
    return sum(each.get(f"cmdstat_{name}", {}).get("calls", 0) for each in stats for name in names)


if __name__ == "__main__":
    port, waiters, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(_crowd(int(port), int(waiters), float(seconds)))))
