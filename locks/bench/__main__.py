"""RedisLock, redis-py's Lock, python-redis-lock and the floor, interleaved in one run.

    python -m locks.bench     about three minutes

Prints a table for each measure. Every figure is a median over the rounds; within a round the locks
take turns in shuffled order, so that a busy machine slows all of them. Commands are what the server
has read, the handshakes of new connections included.
"""

import multiprocessing
import os
import platform
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from ..testing.server import Server
from .drain import PROCESSES, TASKS, THREADS, drain, pairs


def compare(
    title: str, locks: list[str], rounds: int, measure: Callable[[str], dict[str, float]]
) -> None:
    """Print the medians, a row per figure and a column per lock."""
    chance = random.Random(rounds)
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(rounds):
        for lock in chance.sample(locks, len(locks)):
            for name, value in measure(lock).items():
                found[name][lock].append(value)
    print("".join([f"\n{title}".ljust(35), *(lock.rjust(19) for lock in locks)]))
    for name, values in found.items():
        medians = [f"{statistics.median(values[lock]):,.4g}".rjust(19) for lock in locks]
        print("".join([f"  {name}".ljust(34), *medians]), flush=True)


def main() -> None:
    server = Server()
    try:
        info = server.client().info("server")
        version = info.get("valkey_version") or info["redis_version"]
        print(f"{os.cpu_count()} processors, Python {platform.python_version()}, server {version}")
        compare("uncontended", [*THREADS], 100, lambda lock: pairs(server.port, lock, 0.1))
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(time.sleep, [0.5] * PROCESSES))  # all have started
            for kind, locks, hold in (
                ("threads", [*THREADS], 0.001),
                ("threads", [*THREADS], 0.005),
                ("tasks", ["RedisLock", *TASKS], 0.001),
            ):
                title = f"200 {kind}, hold {1000 * hold:.0f} ms"
                compare(title, locks, 11, partial(drain, pool, server.port, 200, hold))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
