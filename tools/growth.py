"""Rushes of more and more buyers: what each takes in seconds, memory, threads and processors.

Each is a sale of its own, against nodes of its own that have just started. growth.md is the table
that `make readme` puts into docs/scale.md.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import psutil
from rich.console import Console

from loadtest.commands.load import parts
from loadtest.commands.main import exit_code_of
from loadtest.commands.output import Output
from loadtest.commands.rushes import Setting, rush, stack_and_buyers
from loadtest.expected import EXPECTED
from loadtest.judge.run import Run, Summary
from loadtest.report import tables as report
from loadtest.rush.bounds import BUYERS, whole
from loadtest.rush.locust_process import LocustProcess
from loadtest.stack.node import family
from loadtest.stack.stack import NAMES, SERVERS, Stack

#: Hand-over in Redis, and the database's own queue.
LOCKS = ("redis", "row-lock")
SIZES = (200, 1000, 2000, 5000)
#: Buyers of the small rush after which the memory of nodes without buyers is measured: what is
#: imported and opened by the first purchases is no buyer's.
FEW = 20
#: Buyers of a large rush give up after a second for each group of this many, so that the rush has a
#: verdict on a slow machine too.
A_SECOND_FOR = 20
#: What processors do when they compute, as psutil calls it. A guest's time is in `user`.
COMPUTING = ("user", "nice", "system", "irq", "softirq")
#: Seconds between two looks. A look at a process of thousands of threads takes some 10 ms.
INTERVAL = 0.2
NODES, MACHINE = "nodes", "machine"
MB = 1024 * 1024

LEGEND = """
KB/buyer: memory of all nodes from a few threads and no buyer to the peak of the rush, per buyer
request p99: of each single request; buyer p99: until the buyer's last answer
CPU ms/buyer: processor time of the nodes, PostgreSQL, Valkey, Locust, divided by the buyers
busiest %, machine %: of one processor, the nodes' busiest process and all that ran there"""
#: Of which CPU ms/buyer is shown, in this order.
PARTS = (NODES, "PostgreSQL", "Valkey", "Locust")
#: The columns after lock and verdict.
COLUMNS: Mapping[str, Callable[[Run], str]] = {
    "buyers": lambda run: str(run["buyers"]),
    "nodes": lambda run: str(run["grown"]["nodes"]),
    "s": lambda run: f"{run['duration_s']:.2f}",
    "ms/buyer": lambda run: f"{run['duration_s'] * 1000 / run['buyers']:.2f}",
    "request p99 ms": lambda run: f"{run['requests']['p99']:.0f}",
    "buyer p99 ms": lambda run: f"{run['buy_ms']['p99']:.0f}",
    "spread ms": lambda run: f"{run['arrival_spread_ms']:.0f}",
    "nodes MB": lambda run: f"{run['grown']['peak_mb']:.0f}",
    "KB/buyer": lambda run: f"{run['grown']['kb_per_buyer']:.0f}",
    "threads": lambda run: str(run["grown"]["threads"]),
    "CPU ms/buyer": lambda run: ", ".join(_per_buyer(run, part) for part in PARTS),
    "busiest %": lambda run: f"{run['grown']['cpu'].get('nodes (one)', 0):.0f}",
    "machine %": lambda run: f"{run['grown']['cpu'][MACHINE]:.0f}",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One look."""

    t: float  # monotonic seconds
    memory: int  # bytes of the nodes, proportional set size where the system has it
    threads: int  # of the nodes
    cpu: Mapping[str, Mapping[int, float]]  # part -> pid -> seconds of processor since its start


@contextmanager
def watched(parts: Mapping[str, Sequence[int]]) -> Iterator[list[Sample]]:
    """Look at the processes of each part, and at what descends from them, every INTERVAL seconds
    until the block ends, then and now."""
    samples = [look(parts)]
    enough = threading.Event()

    def watch() -> None:
        while not enough.wait(INTERVAL):
            samples.append(look(parts))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        enough.set()
        thread.join()
        samples.append(look(parts))


def shares(samples: Sequence[Sample], began: float, seconds: float) -> dict[str, float]:
    """Shares of one processor, in percent, of each part and of the busiest process of it: between
    the looks around these seconds, divided by the seconds.

    began    monotonic seconds
    """
    before = [one for one in samples if one.t <= began][-1]
    after = next((one for one in samples if one.t >= began + seconds), samples[-1])
    found = {}
    for part, spent in after.cpu.items():
        used = [now - before.cpu[part].get(pid, 0.0) for pid, now in spent.items()]
        found[part] = round(100 * sum(used) / seconds, 1)
        found[f"{part} (one)"] = round(100 * max(used, default=0.0) / seconds, 1)
    return found


def look(parts: Mapping[str, Sequence[int]]) -> Sample:
    """One sample of the parts. A process that has ended counts as nothing."""
    memory = threads = 0
    cpu: dict[str, dict[int, float]] = {part: {} for part in parts}
    for part, pids in parts.items():
        for process in [one for pid in pids for one in family(pid)]:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                cpu[part][process.pid] = sum(process.cpu_times()[:2])  # without its children's
                if part == NODES:
                    threads += process.num_threads()
                    full = process.memory_full_info()
                    memory += int(getattr(full, "pss", 0) or full.uss)
    times = psutil.cpu_times()
    cpu[MACHINE] = {0: sum(getattr(times, name, 0.0) for name in COMPUTING)}
    return Sample(time.monotonic(), memory, threads, cpu)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them all, print a table, write summary.json and growth.md.

    Returns 0 if every verdict was the expected one, 1 if not, else as every command does.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.growth", description=__doc__)
    parser.add_argument("--buyers", type=BUYERS, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--nodes", type=whole(1, len(NAMES)), nargs="+", default=(2,), metavar="N")
    parser.add_argument("--lock", nargs="+", choices=list(EXPECTED), default=LOCKS, metavar="LOCK")
    parser.add_argument("--server", choices=SERVERS, default=SERVERS[0])
    parser.add_argument("--locust-workers", type=whole(1, 16), default=1, metavar="N")
    parser.add_argument("--repeat", type=whole(1, 1000), default=1, metavar="N")
    given = parser.parse_args(arguments)
    return exit_code_of(partial(_run, given))


def _run(given: argparse.Namespace, console: Console) -> int:
    usual = Setting(locks=given.lock, server=given.server, locust_workers=given.locust_workers)
    runs: list[Run] = []
    with Output(console) as out:
        where: dict[str, Any] = {"log": out.log, "progress": out.progress}
        for nodes in given.nodes:
            base = _base(replace(usual, nodes=nodes), out)
            for _, buyers, lock in product(range(given.repeat), given.buyers, given.lock):
                deadline = max(usual.deadline, buyers / A_SECOND_FOR)
                setting = replace(usual, buyers=buyers, nodes=nodes, deadline=deadline)
                out.progress(f"{buyers} buyers, {nodes} nodes, lock: {lock}")
                with stack_and_buyers(setting, **where) as (stack, crowd):
                    runs.append(_one(stack, crowd, setting, lock, base))
                    summary = out.summary(stack, runs)
                report.write_summary(out.path, summary)  # a later rush may fail
                (out.path / "growth.md").write_text(markdown(summary))
        out.finish()
    reasons = [*repeated(runs), *report.reasons(runs)]
    return out.conclude(_sheet(runs), reasons, LEGEND, "growth.md")


def _base(setting: Setting, out: Output) -> float:
    """MB of the nodes with one thread in each process, after a few purchases under each lock."""
    few = replace(setting, buyers=1)
    with stack_and_buyers(few, log=out.log, progress=out.progress) as (stack, buyers):
        for lock in setting.locks:
            rush(stack, buyers, replace(setting, buyers=FEW), lock)
        return look(parts(stack)).memory / MB


def _one(stack: Stack, buyers: LocustProcess, setting: Setting, lock: str, base: float) -> Run:
    """One rush, with what it took as `grown`. Raises StackError.

    Memory is the nodes' proportional set size in MB, where a page that n processes share counts as
    1/n in each: `base_mb` with one thread in each process, after a small rush, `peak_mb` the most
    during this one, `kb_per_buyer` from base to peak.
    `threads` is the most that the nodes had. `cpu` is in percent of one processor during the rush:
    of each part in all, of its busiest process as `... (one)`, and of the machine, whoever used it.
    """
    with watched({**parts(stack), "Locust": [buyers.pid]}) as samples:
        done = rush(stack, buyers, setting, lock)
    peak = max(sample.memory for sample in samples) / MB
    grown = {
        "server": setting.server,
        "nodes": setting.nodes,
        "workers": setting.workers,
        "locust_workers": setting.locust_workers,
        "base_mb": round(base, 1),
        "peak_mb": round(peak, 1),
        "kb_per_buyer": round((peak - base) * 1024 / setting.buyers, 1),
        "threads": max(sample.threads for sample in samples),
        "cpu": shares(samples, done["began_s"], done["duration_s"]),
    }
    return {**done, "grown": grown}


def _per_buyer(run: Run, part: str) -> str:
    """Milliseconds of processor that a part took for a buyer. Other work on the machine makes a
    rush longer, and this hardly."""
    percent = run["grown"]["cpu"].get(part)
    if percent is None:
        return "-"
    return f"{percent / 100 * run['duration_s'] * 1000 / run['buyers']:.1f}"


def repeated(runs: Sequence[Run]) -> list[str]:
    """Of rushes that were made more than once: verdicts and spread, a line for each kind."""
    kinds: dict[tuple[str, int, int], list[Run]] = {}
    for run in runs:
        key = (report.named(run), run["buyers"], run["grown"]["nodes"])
        kinds.setdefault(key, []).append(run)
    lines = []
    for (name, buyers, nodes), found in kinds.items():
        if len(found) > 1:
            spread = [run["arrival_spread_ms"] for run in found]
            held = sum(run["as_expected"] for run in found)
            lines.append(
                f"{name}, {buyers} buyers, {nodes} nodes: {held} of {len(found)} as expected; "
                f"spread {min(spread):.0f} to {max(spread):.0f} ms, median {median(spread):.0f}"
            )
    return lines


def _sheet(runs: Sequence[Run]) -> report.Sheet:
    rows = [(run, [figure(run) for figure in COLUMNS.values()]) for run in runs]
    return report.Sheet(list(COLUMNS), rows)


def markdown(summary: Summary) -> str:
    """The table, and where and when it was measured."""
    first = summary["runs"][0]
    grown = first["grown"]
    waits = "a thread for each buyer" if grown["server"] == SERVERS[0] else "no thread for a buyer"
    where = (
        f"{first['initial_stock']} units; {grown['server']}, {waits}, {grown['workers']} "
        f"processes a node, {grown['locust_workers']} of Locust; "
        f"{report.machine_and_date(summary)}; `make growth`."
    )
    again = [f"- {line}" for line in repeated(summary["runs"])]
    return _sheet(summary["runs"]).markdown("\n\n".join([*again, where]))


if __name__ == "__main__":
    sys.exit(main())
