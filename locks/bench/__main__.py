"""RedisLock, redis-py's Lock, python-redis-lock and the floor, interleaved in one run.

    python -m locks.bench             about three minutes
    python -m locks.bench --quick     about one minute, for a look

Prints one table and writes results/<time>/bench.json. Every figure is a median over the rounds;
within a round the locks take turns in shuffled order, so that a busy machine slows all of them.
Commands are what the server has read, the handshakes of new connections included.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from ..testing.server import Server
from .contenders import TASKS, THREADS
from .crowd import crowd
from .drain import PROCESSES, drain, pairs

Figures = dict[str, dict[str, float]]  # lock -> measure -> median
COLUMNS = [*THREADS, *TASKS]
#: measure: its row's title, its format
ROWS = {
    "pairs_per_s": ("pairs/s", "{:.0f}"),
    "seconds": ("seconds", "{:.3f}"),
    "ratio": ("RedisLock / this", "{:.2f}"),
    "hand_over_us": ("hand-over, us", "{:.0f}"),
    "overtakes_max": ("overtakes, most", "{:.0f}"),
    "reads": ("commands per acquisition", "{:.1f}"),
    "bytes_per_waiter": ("bytes per waiter", "{:.0f}"),
    "cpu_percent_while_waiting": ("% CPU while waiting", "{:.2f}"),
    "drained_per_s": ("drained per second", "{:.0f}"),
    "out_of_order": ("out of order", "{:.0f}"),
}


def interleaved(
    locks: list[str], rounds: int, measure: Callable[[str], dict[str, float]]
) -> Figures:
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


def run(port: int, *, quick: bool) -> dict[str, Figures]:
    """Every measure, by its title."""
    alone, queued = (20, 3) if quick else (100, 11)
    spawned = multiprocessing.get_context("spawn")
    report: dict[str, Figures] = {}
    print("uncontended ...", flush=True)
    report["uncontended"] = interleaved([*THREADS], alone, lambda lock: pairs(port, lock, 0.1))
    with ProcessPoolExecutor(PROCESSES, spawned) as pool:
        list(pool.map(time.sleep, [0.5] * PROCESSES))  # all have started
        for kind, locks, hold in (
            ("threads", [*THREADS], 0.001),
            ("threads", [*THREADS], 0.005),
            ("tasks", ["RedisLock", *TASKS], 0.001),
        ):
            title = f"drain of 200 {kind}, hold {1000 * hold:.0f} ms"
            print(f"{title} ...", flush=True)

            def drained(lock: str, hold: float = hold) -> dict[str, float]:
                return drain(pool, port, lock, 200, hold)

            report[title] = interleaved(locks, queued, drained)
    title = "10,000 tasks that wait in one process"
    print(f"{title} ...", flush=True)
    with ProcessPoolExecutor(1, spawned) as one:
        report[title] = {"AsyncRedisLock": one.submit(crowd, port, 10_000).result()}
    return report


def table(report: dict[str, Figures]) -> str:
    """A row per figure, a column per lock."""
    lines = [["", *COLUMNS]]
    for scenario, figures in report.items():
        lines.append([scenario])
        for measure, (title, form) in ROWS.items():
            if any(measure in found for found in figures.values()):
                values = [figures.get(lock, {}).get(measure) for lock in COLUMNS]
                cells = ["" if value is None else form.format(value) for value in values]
                lines.append([f"  {title}", *cells])
    return "\n".join(
        first.ljust(30) + "".join(cell.rjust(max(len(cell), 17) + 2) for cell in cells)
        for first, *cells in lines
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m locks.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder")
    options = parser.parse_args()
    begun = datetime.now(UTC)
    server = Server()
    try:
        version = server.client().info("server")
        report = run(server.port, quick=options.quick)
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
    print(f"\n{table(report)}\n\n{path}")


if __name__ == "__main__":
    main()
