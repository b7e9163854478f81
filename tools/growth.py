"""Measures the time, memory, threads and processor time of rushes of more and more buyers.

Each rush has a new sale, on nodes that have just started. `make readme` puts the table of
growth.md into docs/scale.md.
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
#: The numbers of buyers.
DEFAULT_SIZES = (200, 1000, 2000, 5000)
#: The buyers of a small rush that comes before the memory of idle nodes is measured. It loads the
#: modules and opens the connections, so that their memory does not count for the buyers.
WARM_UP_BUYERS = 20
#: The deadline of a large rush is the number of buyers divided by this, in seconds. A slow machine
#: serves more than 20 buyers per second, so the rush has a verdict there, too.
BUYERS_PER_DEADLINE_SECOND = 20
#: psutil's names of the times in which processors compute. `guest` is left out: `user` contains it.
COMPUTING_TIMES = ("user", "nice", "system", "irq", "softirq")
#: Not shorter, because sampling a process with thousands of threads takes some 10 ms.
SAMPLE_INTERVAL_SECONDS = 0.2
#: The name that find_pids() gives to the part that is all nodes.
NODES = "nodes"
#: The name of the part that is the whole machine.
MACHINE = "machine"
MB = 1024 * 1024

LEGEND = """
KB/buyer: peak memory of all nodes in the rush, less their memory before any buyer, per buyer
request p99: of each single request; buyer p99: until the buyer's last answer
CPU ms/buyer: processor time of the nodes, PostgreSQL, Valkey, Locust, divided by the buyers
busiest %, machine %: percent of one processor, used by the nodes' busiest process and by all
programs on the machine"""
#: The parts in the column `CPU ms/buyer`, in this order.
SHOWN_PARTS = (NODES, "PostgreSQL", "Valkey", "Locust")


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of all parts at one moment.

    A part is the nodes, a server such as PostgreSQL, Locust, or MACHINE.

    taken_at  the moment, in monotonic seconds
    memory    the bytes of the nodes: their proportional set size, or, on a system without it, their
              unique set size
    threads   the number of threads of the nodes
    cpu       part -> pid -> processor seconds since the start of the process; MACHINE has the pid 0
              and the seconds since the start of the machine
    """

    taken_at: float
    memory: int
    threads: int
    cpu: Mapping[str, Mapping[int, float]]


@contextmanager
def sample_while_running(parts: Mapping[str, Sequence[int]]) -> Iterator[list[Sample]]:
    """Sample the processes of each part and their descendants while the block runs.

    Yields the list of samples: one at the beginning, one per interval, and one at the end.

    parts  the pids of each part
    """
    samples = [take_sample(parts)]
    is_over = threading.Event()

    def take_samples() -> None:
        while not is_over.wait(SAMPLE_INTERVAL_SECONDS):
            samples.append(take_sample(parts))

    thread = threading.Thread(target=take_samples, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()
        samples.append(take_sample(parts))


def compute_cpu_percentages(
    samples: Sequence[Sample], started_at: float, seconds: float
) -> dict[str, float]:
    """Return the percentages of one processor that each part and its busiest process used.

    A part is the nodes, a server, Locust, or the whole machine. The keys are the parts, and
    `PART (one)` for the busiest process of each part. The processor time between the last sample
    before the interval and the first sample after it is divided by the interval's length. A process
    that ended before that first sample is not counted.

    started_at  start of the interval, in monotonic seconds
    seconds     length of the interval
    """
    before = [sample for sample in samples if sample.taken_at <= started_at][-1]
    later_samples = (sample for sample in samples if sample.taken_at >= started_at + seconds)
    after = next(later_samples, samples[-1])
    percentages = {}
    for part, totals in after.cpu.items():
        used = [total - before.cpu[part].get(pid, 0.0) for pid, total in totals.items()]
        percentages[part] = round(100 * sum(used) / seconds, 1)
        percentages[f"{part} (one)"] = round(100 * max(used, default=0.0) / seconds, 1)
    return percentages


def take_sample(parts: Mapping[str, Sequence[int]]) -> Sample:
    """Return a sample of the memory, the threads and the processor time of all parts.

    Processes that have ended, or that this user may not read, are left out.

    parts  the pids of each part, such as the nodes
    """
    memory = threads = 0
    cpu: dict[str, dict[int, float]] = {part: {} for part in parts}
    for part, pids in parts.items():
        for process in chain.from_iterable(map(list_process_tree, pids)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process_times = process.cpu_times()
                # cpu_times() also has the times of the children. They are not added here, because
                # the tree contains the children themselves.
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

    Returns 0 if every verdict was the expected one, and 1 if not. After an error, returns the exit
    code that run_printing_errors() chooses.
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
    """Make the rushes of these options, write their results, and return the exit code."""
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
    """Return the memory in MB of new nodes that have served a small rush under each strategy.

    The nodes are started for one buyer, so they have few threads.
    """
    one_buyer = replace(rush_options, buyers=1)
    with run_stack_and_locust(one_buyer, log=out.log, progress=out.progress) as (stack, locust):
        for lock in rush_options.locks:
            run_rush(stack, locust, replace(rush_options, buyers=WARM_UP_BUYERS), lock)
        return take_sample(find_pids(stack)).memory / MB


def _measure_rush(
    stack: Stack, locust: LocustProcess, rush_options: RushOptions, lock: str, idle_mb: float
) -> Run:
    """Make one rush, and return its run with the resources that it used as `grown`.

    Memory is the proportional set size of the nodes in MB: a page of memory that n processes share
    counts as 1/n in each. `base_mb` is the memory of idle nodes, `peak_mb` the maximum in this
    rush, and `kb_per_buyer` the difference, in KB, divided by the buyers. `threads` is the maximum
    number of threads of all nodes. `cpu` is the result of compute_cpu_percentages(); the machine's
    percentages include other programs. Raises StackError.
    """
    with sample_while_running({**find_pids(stack), "Locust": [locust.pid]}) as samples:
        run = run_rush(stack, locust, rush_options, lock)
    peak_mb = max(sample.memory for sample in samples) / MB
    grown = {
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
    return {**run, "grown": grown}


def _format_cpu_ms_per_buyer(run: Run, part: str) -> str:
    """Return the processor time of a part per buyer, in milliseconds; `-` if it was not measured.

    Other work on the machine makes a rush longer, but hardly changes this figure.
    """
    percent = run["grown"]["cpu"].get(part)
    if percent is None:
        return "-"
    return f"{percent / 100 * run['duration_s'] * 1000 / run['buyers']:.1f}"


def summarize_repetitions(runs: Sequence[Run]) -> list[str]:
    """Return a line for each kind of rush that was made more than once.

    Rushes of one kind have the same strategy, the same number of buyers and the same number of
    nodes. The line has the number of expected verdicts, and the spread of the buyers' arrivals.
    """
    runs_by_kind: dict[tuple[str, int, int], list[Run]] = {}
    for run in runs:
        kind = (report.make_run_label(run), run["buyers"], run["grown"]["nodes"])
        runs_by_kind.setdefault(kind, []).append(run)
    lines = []
    for (name, buyers, nodes), repetitions in runs_by_kind.items():
        if len(repetitions) > 1:
            spread = [run["arrival_spread_ms"] for run in repetitions]
            as_expected = sum(run["as_expected"] for run in repetitions)
            lines.append(
                f"{name}, {buyers} buyers, {nodes} nodes: {as_expected} of {len(repetitions)} as "
                f"expected; spread {min(spread):.0f} to {max(spread):.0f} ms, "
                f"median {median(spread):.0f}"
            )
    return lines


def format_columns(run: Run) -> dict[str, str]:
    """Return the texts of a run's row by the headings of their columns.

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
        "CPU ms/buyer": ", ".join(_format_cpu_ms_per_buyer(run, part) for part in SHOWN_PARTS),
        "busiest %": f"{grown['cpu'].get('nodes (one)', 0):.0f}",
        "machine %": f"{grown['cpu'][MACHINE]:.0f}",
    }


def _make_sheet(runs: Sequence[Run]) -> report.Sheet:
    rows = [(run, list(format_columns(run).values())) for run in runs]
    return report.Sheet(list(format_columns(runs[0])), rows)


def make_markdown(summary: Summary) -> str:
    """Return the table as Markdown, with the repetitions, setup, machine and date below it.

    All runs of a command have the same setup. It is read from the first run.
    """
    first_run = summary["runs"][0]
    grown = first_run["grown"]
    threads = "no thread for a buyer"
    if grown["server"] == "gthread":
        threads = "a thread for each buyer"
    setup = (
        f"{first_run['initial_stock']} units; {grown['server']}, {threads}, {grown['workers']} "
        f"processes a node, {grown['locust_workers']} of Locust; "
        f"{report.describe_machine_and_date(summary)}; `make growth`."
    )
    paragraphs = [f"- {line}" for line in summarize_repetitions(summary["runs"])]
    paragraphs.append(setup)
    return _make_sheet(summary["runs"]).markdown("\n\n".join(paragraphs))


if __name__ == "__main__":
    sys.exit(main())
