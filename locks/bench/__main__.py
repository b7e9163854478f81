"""RedisLock beside redis-py's Lock, python-redis-lock and the floor, interleaved in one run.

    python -m locks.bench             about five minutes
    python -m locks.bench --quick     about one minute, for a look

Prints one table and writes results/<time>/bench.json. Every figure is a median over the rounds;
within a round the locks take turns in shuffled order, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ..testing.process import LOCKS, Process
from ..testing.server import Server
from . import counting, doors, scenarios
from .contenders import AWAITED, UNCONTENDED, WAITING
from .table import table

Figures = dict[str, dict[str, float]]  # lock -> measure -> median
Measure = Callable[[str], dict[str, float]]


def interleaved(locks: list[str], rounds: int, measure: Measure) -> Figures:
    """Medians per lock, each round in an order of its own.

    `ratio` is RedisLock's first measure divided by this lock's, in the same round.
    """
    chance = random.Random(rounds)
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(rounds):
        for lock in chance.sample(locks, len(locks)):
            for name, value in measure(lock).items():
                found[lock][name].append(value)
        for lock in locks:
            first = next(iter(found[lock]))
            found[lock]["ratio"].append(found["RedisLock"][first][-1] / found[lock][first][-1])
    return {
        lock: {name: statistics.median(values) for name, values in found[lock].items()}
        for lock in locks
    }


def run(server: Server, *, quick: bool) -> dict[str, Any]:
    """Every scenario."""
    client = server.client()
    waiting = list(WAITING)
    started: list[Process] = []

    def start() -> Process:
        started.append(Process(server.port, f"{LOCKS}.bench.worker"))
        return started[-1]

    try:
        workers = [start() for _ in range(scenarios.PROCESSES + 1)]
        report: dict[str, Any] = {}

        def do(name: str, locks: list[str], rounds: int, measure: Measure) -> None:
            print(f"{name} ...", flush=True)
            report[name] = interleaved(locks, rounds, measure)

        many, some, few, seconds = (20, 3, 1, 1.5) if quick else (100, 11, 3, 5.0)
        do(
            "uncontended",
            list(UNCONTENDED),
            many,
            lambda lock: scenarios.uncontended(client, lock, 0.1),
        )
        for hold in (0.001, 0.005):

            def drained(lock: str, hold: float = hold) -> dict[str, float]:
                if lock == "floor":
                    return scenarios.relay(client, workers, 200, hold)
                return scenarios.drain(workers, lock, 200, hold)

            title = f"drain of 200, hold {1000 * hold:.0f} ms"
            do(title, ["floor", *waiting], some, drained)
        do(
            "32 in a loop, hold 1 ms",
            waiting,
            few,
            lambda lock: scenarios.churn(workers, lock, 32, 0.001, seconds),
        )
        do(
            "drain of 200 tasks, hold 1 ms",
            ["RedisLock", *AWAITED],
            some,
            partial(scenarios.drain, workers, waiters=200, hold=0.001),
        )
        print("10,000 tasks that wait in one process ...", flush=True)
        report["crowd of 10,000 tasks"] = {"AsyncRedisLock": doors.crowd(server.port, 10_000)}
        print("a cluster beside a single server ...", flush=True)
        report["cluster"] = {"RedisLock": doors.cluster_beside_single(server.port)}
        for waiters in (12, 100) if quick else (12, 100, 800):
            do(
                f"commands with {waiters} waiters",
                ["RedisLock"],
                1,
                partial(scenarios.drain, workers, waiters=waiters, hold=0.001),
            )
        do("holder killed", waiting, few, lambda lock: scenarios.killed_holder(start, lock, 2))
        do("head waiter killed", waiting, few, lambda lock: scenarios.killed_waiter(start, lock, 2))
        return report
    finally:
        for process in started:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m locks.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder")
    options = parser.parse_args()
    begun = datetime.now(UTC)
    counting.install()
    server = Server()
    try:
        version = server.client().info("server")
        report = run(server, quick=options.quick)
    finally:
        server.stop()
    folder = options.results / begun.strftime("%Y%m%dT%H%M%SZ")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bench.json"
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "server": version.get("valkey_version") or version["redis_version"],
    }
    document = {"started": begun.isoformat(), "machine": machine, "scenarios": report}
    path.write_text(json.dumps(document, indent=1) + "\n")
    print()
    print(table(report))
    print(f"\n{path}")


if __name__ == "__main__":
    main()
