"""Measures the time, memory, threads and processor time of rushes of more and more buyers.

In a rush all buyers arrive at once. Each rush has a new sale, on nodes (web servers of the shop)
that have just started. `make readme` copies the table of growth.md into docs/scale.md.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from statistics import median

import psutil
from rich.console import Console

from loadtest.commands.load import find_pids
from loadtest.commands.main import run_printing_errors
from loadtest.commands.output import Output
from loadtest.commands.rushes import RushOptions, run_rush, run_stack_and_locust
from loadtest.expected import EXPECTED
from loadtest.judge.run import Run, Summary
from loadtest.report import tables as report
from loadtest.rush.locust.locust_process import LocustProcess
from loadtest.rush.option_parsers import make_whole_number_parser, parse_buyer_count
from loadtest.stack.node import list_process_tree
from loadtest.stack.stack import NODE_NAMES, SERVERS, Stack

#: Two strategies whose buyers wait in different places: in a queue in Redis, and in the database.
DEFAULT_LOCKS = ("redis", "row-lock")
#: The default numbers of buyers, one for each rush.
DEFAULT_SIZES = (200, 1000, 2000, 5000)
#: The number of buyers in a small rush before the memory of idle nodes is measured. The rush loads
#: the modules and opens the connections, so that their memory is not attributed to the buyers.
WARM_UP_BUYERS = 20
#: The deadline of a large rush in seconds is the number of buyers divided by this. Even a slow
#: machine serves more than 20 buyers per second, so it finishes the rush before the deadline.
BUYERS_PER_DEADLINE_SECOND = 20
#: psutil's names for the times in which a processor computes. `guest` is missing, because `user`
#: contains it.
COMPUTING_TIMES = ("user", "nice", "system", "irq", "softirq")
#: The interval is not shorter, because the sample of a process with thousands of threads takes some
#: 10 ms.
SAMPLE_INTERVAL_SECONDS = 0.2
#: The name of the part of the system that is all nodes; find_pids() uses it.
NODES = "nodes"
#: The name of the part that is the whole machine.
MACHINE = "machine"
MB = 1024 * 1024

LEGEND = """
KB/buyer: peak memory of all nodes in the rush, minus their memory when idle, per buyer
request p99: time of a single request; buyer p99: time until a buyer's last response
CPU ms/buyer: processor time of the nodes, PostgreSQL, Valkey, Locust, divided by the buyers
busiest %, machine %: percent of one processor, used by the nodes' busiest process and by all
programs on the machine"""
#: The parts in the column `CPU ms/buyer`, in this order.
CPU_COLUMN_PARTS = (NODES, "PostgreSQL", "Valkey", "Locust")


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of all parts of the system at one moment.

    A part is the nodes, a server such as PostgreSQL, Locust, or MACHINE.

    taken_at  the moment, in monotonic seconds
    memory    the memory of the nodes in bytes: their proportional set size or, on a system that
              does not measure it, their unique set size
    threads   the number of threads of the nodes
    cpu       part -> pid -> processor seconds since the start of the process. For MACHINE the pid
              is 0, and the seconds are those since the start of the machine
    """

    taken_at: float
    memory: int
    threads: int
    cpu: Mapping[str, Mapping[int, float]]


@contextmanager
def sample_while_running(parts: Mapping[str, Sequence[int]]) -> Iterator[list[Sample]]:
    """Sample the processes of each part and their descendants while the block runs.

    Yields the list of samples, which grows: one sample at the beginning, one in each interval, and
    one at the end.

    parts  part of the system, such as NODES -> the pids of its processes
    """
    samples = [take_sample(parts)]
    block_has_ended = threading.Event()

    def take_samples() -> None:
        while not block_has_ended.wait(SAMPLE_INTERVAL_SECONDS):
            samples.append(take_sample(parts))

    thread = threading.Thread(target=take_samples, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        block_has_ended.set()
        thread.join()
        samples.append(take_sample(parts))


def compute_cpu_percentages(
    samples: Sequence[Sample], started_at: float, seconds: float
) -> dict[str, float]:
    """Return how much processor time each part used in an interval, in percent of one processor.

    A part is the nodes, a server, Locust, or the whole machine. The key `PART` has the percentage
    of all processes of a part, and the key `PART (one)` that of its busiest process.

    The processor time between the last sample before the interval and the first sample after it is
    divided by the length of the interval. A process that had ended by the sample after the interval
    is not counted.

    started_at  start of the interval, in monotonic seconds
    seconds     length of the interval
    """
    before = [sample for sample in samples if sample.taken_at <= started_at][-1]
    later_samples = (sample for sample in samples if sample.taken_at >= started_at + seconds)
    after = next(later_samples, samples[-1])
    percentages = {}
    for part, seconds_by_pid in after.cpu.items():
        used_seconds = [
            seconds_after - before.cpu[part].get(pid, 0.0)
            for pid, seconds_after in seconds_by_pid.items()
        ]
        percentages[part] = round(100 * sum(used_seconds) / seconds, 1)
        percentages[f"{part} (one)"] = round(100 * max(used_seconds, default=0.0) / seconds, 1)
    return percentages


def take_sample(parts: Mapping[str, Sequence[int]]) -> Sample:
    """Return a sample of the memory, the threads and the processor time of all parts.

    Processes that have ended, or that this user may not read, are left out.

    parts  part of the system, such as NODES -> the pids of its processes
    """
    memory = threads = 0
    cpu: dict[str, dict[int, float]] = {part: {} for part in parts}
    for part, pids in parts.items():
        for process in chain.from_iterable(map(list_process_tree, pids)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process_times = process.cpu_times()
                # cpu_times() also has the times of the child processes. These are not added here,
                # because the loop visits the child processes, too.
                cpu[part][process.pid] = process_times.user + process_times.system
                if part == NODES:
                    threads += process.num_threads()
                    usage = process.memory_full_info()
                    memory += int(getattr(usage, "pss", 0) or usage.uss)  # only Linux has pss
    times = psutil.cpu_times()
    cpu[MACHINE] = {0: sum(getattr(times, name, 0.0) for name in COMPUTING_TIMES)}
    return Sample(time.monotonic(), memory, threads, cpu)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rushes, print a table, and write summary.json and growth.md.

    Returns the exit code: 0 if every verdict was the expected one, and 1 if not. If an error ends
    the command, run_printing_errors() prints the error and chooses the exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.growth", description=__doc__)
    parser.add_argument(
        "--buyers", type=parse_buyer_count, nargs="+", default=DEFAULT_SIZES, metavar="N"
    )
    parser.add_argument(
        "--nodes",
        type=make_whole_number_parser(1, len(NODE_NAMES)),
        nargs="+",
        default=(2,),
        metavar="N",
    )
    parser.add_argument(
        "--lock", nargs="+", choices=list(EXPECTED), default=DEFAULT_LOCKS, metavar="LOCK"
    )
    parser.add_argument("--server", choices=SERVERS, default=SERVERS[0])
    parser.add_argument(
        "--locust-workers", type=make_whole_number_parser(1, 16), default=1, metavar="N"
    )
    parser.add_argument("--repeat", type=make_whole_number_parser(1, 1000), default=1, metavar="N")
    options = parser.parse_args(arguments)
    return run_printing_errors(partial(_run, options))


def _run(options: argparse.Namespace, console: Console) -> int:
    """Make the rushes of the command line, and write their results. Return the exit code.

    In a rush all buyers arrive at once. There is a rush for each number of nodes, number of buyers
    and strategy, `--repeat` times.
    """
    default = RushOptions(
        locks=options.lock, server=options.server, locust_workers=options.locust_workers
    )
    runs: list[Run] = []
    with Output(console) as out:
        for nodes in options.nodes:
            idle_mb = _measure_idle_nodes(replace(default, nodes=nodes), out)
            for _, buyers, lock in product(range(options.repeat), options.buyers, options.lock):
                deadline = max(default.deadline, buyers / BUYERS_PER_DEADLINE_SECOND)
                rush_options = replace(default, buyers=buyers, nodes=nodes, deadline=deadline)
                out.progress(f"{buyers} buyers, {nodes} nodes, lock: {lock}")
                servers = run_stack_and_locust(rush_options, log=out.log, progress=out.progress)
                with servers as (stack, locust):
                    runs.append(_measure_rush(stack, locust, rush_options, lock, idle_mb))
                    summary = out.make_summary(stack, runs)
                # The results are written after each rush, because a later rush may fail.
                report.write_summary(out.path, summary)
                (out.path / "growth.md").write_text(make_markdown(summary))
        out.finish()
    reasons = summarize_repetitions(runs) + report.explain_unexpected(runs)
    return out.print_conclusion(_make_sheet(runs), reasons, LEGEND, "growth.md")


def _measure_idle_nodes(rush_options: RushOptions, out: Output) -> float:
    """Return the memory of idle nodes in MB: nodes that have served a small rush of each strategy.

    In a rush all buyers arrive at once. The nodes are started for one buyer, so they have few
    threads. A node that is started for many buyers has more threads, whose memory is then
    attributed to the buyers.
    """
    one_buyer = replace(rush_options, buyers=1)
    with run_stack_and_locust(one_buyer, log=out.log, progress=out.progress) as (stack, locust):
        for lock in rush_options.locks:
            run_rush(stack, locust, replace(rush_options, buyers=WARM_UP_BUYERS), lock)
        return take_sample(find_pids(stack)).memory / MB


def _measure_rush(
    stack: Stack, locust: LocustProcess, rush_options: RushOptions, lock: str, idle_mb: float
) -> Run:
    """Make one rush, and return its run. The field `grown` has the resources that the rush used.

    base_mb       memory of idle nodes, in MB
    peak_mb       maximum memory of the nodes in this rush, in MB
    kb_per_buyer  the difference of these two, in KB, divided by the number of buyers
    threads       maximum number of threads of all nodes
    cpu           the result of compute_cpu_percentages(); that of MACHINE includes other programs

    Memory is the proportional set size: a page of memory that n processes share counts as 1/n in
    each. Raises StackError if a server or a node fails.
    """
    with sample_while_running({**find_pids(stack), "Locust": [locust.pid]}) as samples:
        run = run_rush(stack, locust, rush_options, lock)
    peak_mb = max(sample.memory for sample in samples) / MB
    resources = {
        "server": rush_options.server,
        "nodes": rush_options.nodes,
        "workers": rush_options.workers,
        "locust_workers": rush_options.locust_workers,
        "base_mb": round(idle_mb, 1),
        "peak_mb": round(peak_mb, 1),
        "kb_per_buyer": round((peak_mb - idle_mb) * 1024 / rush_options.buyers, 1),
        "threads": max(sample.threads for sample in samples),
        "cpu": compute_cpu_percentages(samples, run["began_s"], run["duration_s"]),
    }
    return {**run, "grown": resources}


def _format_cpu_ms_per_buyer(run: Run, part: str) -> str:
    """Return the processor time that a part used per buyer, in milliseconds, or `-`.

    A part is the nodes, a server, or Locust. The `-` means that the part was not measured. When the
    machine is busy with other work, a rush takes longer, but this figure hardly changes.
    """
    percent = run["grown"]["cpu"].get(part)
    if percent is None:
        return "-"
    return f"{percent / 100 * run['duration_s'] * 1000 / run['buyers']:.1f}"


def summarize_repetitions(runs: Sequence[Run]) -> list[str]:
    """Return a line for each kind of rush that was made more than once.

    In a rush all buyers arrive at once. Rushes of one kind have the same strategy, the same number
    of buyers and the same number of nodes. The line has the number of expected verdicts, and the
    spread of arrivals: the time between the arrival of the first and of the last buyer.
    """
    runs_by_kind: dict[tuple[str, int, int], list[Run]] = {}
    for run in runs:
        kind = (report.make_run_label(run), run["buyers"], run["grown"]["nodes"])
        runs_by_kind.setdefault(kind, []).append(run)
    lines = []
    for (name, buyers, nodes), repetitions in runs_by_kind.items():
        if len(repetitions) > 1:
            spreads_ms = [run["arrival_spread_ms"] for run in repetitions]
            expected_count = sum(run["as_expected"] for run in repetitions)
            lines.append(
                f"{name}, {buyers} buyers, {nodes} nodes: {expected_count} of {len(repetitions)} "
                f"as expected; spread {min(spreads_ms):.0f} to {max(spreads_ms):.0f} ms, "
                f"median {median(spreads_ms):.0f}"
            )
    return lines


def format_columns(run: Run) -> dict[str, str]:
    """Return the row of a run in the table: the heading of each column, and the run's text in it.

    report.Sheet adds the columns of the strategy and the verdict.
    """
    grown = run["grown"]
    return {
        "buyers": str(run["buyers"]),
        "nodes": str(grown["nodes"]),
        "s": f"{run['duration_s']:.2f}",
        "ms/buyer": f"{run['duration_s'] * 1000 / run['buyers']:.2f}",
        "request p99 ms": f"{run['requests']['p99']:.0f}",
        "buyer p99 ms": f"{run['buy_ms']['p99']:.0f}",
        "spread ms": f"{run['arrival_spread_ms']:.0f}",
        "nodes MB": f"{grown['peak_mb']:.0f}",
        "KB/buyer": f"{grown['kb_per_buyer']:.0f}",
        "threads": str(grown["threads"]),
        "CPU ms/buyer": ", ".join(_format_cpu_ms_per_buyer(run, part) for part in CPU_COLUMN_PARTS),
        "busiest %": f"{grown['cpu'].get(f'{NODES} (one)', 0):.0f}",
        "machine %": f"{grown['cpu'][MACHINE]:.0f}",
    }


def _make_sheet(runs: Sequence[Run]) -> report.Sheet:
    """Return the table of all runs, which can be printed or written as Markdown."""
    rows = [(run, list(format_columns(run).values())) for run in runs]
    return report.Sheet(list(format_columns(runs[0])), rows)


def make_markdown(summary: Summary) -> str:
    """Return the table as Markdown, with the repetitions, setup, machine and date below it.

    The setup is that of the first run, because all runs of a command have the same setup.
    """
    first_run = summary["runs"][0]
    first_setup = first_run["grown"]
    threads = "no thread for a buyer"
    if first_setup["server"] == "gthread":
        threads = "a thread for each buyer"
    setup = (
        f"{first_run['initial_stock']} units; {first_setup['server']}, {threads}, "
        f"{first_setup['workers']} processes a node, {first_setup['locust_workers']} of Locust; "
        f"{report.describe_machine_and_date(summary)}; `make growth`."
    )
    paragraphs = [f"- {line}" for line in summarize_repetitions(summary["runs"])]
    paragraphs.append(setup)
    return _make_sheet(summary["runs"]).markdown("\n\n".join(paragraphs))


if __name__ == "__main__":
    sys.exit(main())
