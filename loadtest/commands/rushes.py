"""The rushes of a command: their setting, the stack and the buyers, one rush and its verdict."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil
from typing import IO, Any, cast

from loadtest.commands.judged import judge_closed, judged_with_history
from loadtest.commands.output import Output, require_known
from loadtest.expected import EXPECTED
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.judge.verdict import Asked
from loadtest.report import tables as report
from loadtest.rush.bounds import allow
from loadtest.rush.locust_process import BUYERS, LocustProcess
from loadtest.rush.rush import judge_cut_short
from loadtest.stack.client import Strategy
from loadtest.stack.stack import SERVERS, SPARE_THREADS, Stack

#: Without a lock, with A1's, with RedisLock.
CONTRAST = ("none", "token", "redis")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is asked to do. `hold_ms` in milliseconds, `deadline` in seconds; `mine` is a file
    of one's own that serve adds as the strategy `mine`; `server` as in Stack; `locust_workers` are
    the processes that the buyers are in."""

    locks: Sequence[str] = CONTRAST
    buyers: int = 200
    stock: int = 100
    hold_ms: int = 0
    nodes: int = 2
    workers: int = 2
    product: str = "apple"
    deadline: float = 60.0
    mine: str = ""
    server: str = SERVERS[0]
    locust_workers: int = 1

    @property
    def threads(self) -> int:
        """Of each worker: enough for all buyers of its node, for accepts do not split evenly, and
        some for the page and the reports."""
        return ceil(self.buyers / self.nodes) + SPARE_THREADS

    @property
    def rush(self) -> dict[str, Any]:
        """What LocustProcess.rush() takes of it."""
        names = ("buyers", "stock", "hold_ms", "product", "deadline")
        return {name: getattr(self, name) for name in names}


@contextmanager
def stack_and_buyers(
    setting: Setting, *, log: IO[bytes], progress: Callable[[str], None], **more: Any
) -> Iterator[tuple[Stack, LocustProcess]]:
    """The stack for a setting, with `more` as in Stack, and a Locust that starts meanwhile. Raises
    StackError when a part does not start, or may not open as many files as a rush needs."""
    processes = setting.locust_workers
    allow(
        ceil(setting.buyers / processes),
        what=f"Locust with {setting.buyers} buyers in {processes} processes",
        otherwise=f"take more with --locust-workers {2 * processes}",
    )
    allow(
        setting.threads,
        what=f"a node with {setting.threads} buyers",
        otherwise="take more nodes with --nodes",
    )
    with ExitStack() as parts:
        buyers = parts.enter_context(LocustProcess(log, workers=processes))
        stack = Stack(
            nodes=setting.nodes,
            workers=setting.workers,
            threads=setting.threads,
            server=setting.server,
            log=log,
            progress=progress,
            **more,
        )
        parts.enter_context(stack)
        parts.push(buyers)  # stopped first: then no connection keeps a node
        yield stack, buyers


def rush_each(
    setting: Setting, out: Output, *, extras: bool, fault: str = "rush", shown: bool = False
) -> tuple[Summary, list[Event]]:
    """The rush under each lock, or under each that there is, on recording nodes. One whose server
    is not installed is `not_run`. Returns the summary and all that was recorded.

    shown  print each verdict at once, and keep Locust's own report of each rush
    """
    with stack_and_buyers(
        setting, log=out.folder.log, progress=out.progress, extras=extras, record=True
    ) as (stack, buyers):
        known = {str(one["name"]): one for one in stack.shop().strategies()}
        require_known(setting.locks, list(known), "lock")
        locks = setting.locks or list(known)
        runs: list[Run] = []
        for number, lock in enumerate(locks, 1):
            size = f"{setting.buyers} buyers, {setting.stock} units"
            out.progress(f"{number}/{len(locks)}  {size}, lock: {lock}")
            if known[lock]["available"]:
                own_report = str(out.folder.path / f"{lock}.html") if shown else ""
                runs.append(rush(stack, buyers, setting, lock, fault, own_report))
            else:
                asked = {"initial_stock": setting.stock, "hold_ms": setting.hold_ms}
                runs.append(not_run(known[lock], buyers=setting.buyers, **asked))
            if shown:
                line = f"{lock:8} {report.verdict_cell(runs[-1])}"
                out.console.print(line, highlight=False)
        judge_closed(stack.shop(), runs)
        return out.summary(stack, runs), stack.events()


def not_run(strategy: Strategy, **asked: int) -> Run:
    """The run of a strategy whose server is not installed."""
    run = {
        "lock": strategy["name"],
        "fault": "rush",
        "verdict": "not_run",
        "expected": EXPECTED[strategy["name"]]["rush"],
        "as_expected": not os.environ.get("CI"),  # where no server may be missing
        "why": f"{strategy['needs']} is not set, and no such server is installed",
    }
    return cast(Run, {**run, **asked})


def rush(
    stack: Stack,
    buyers: LocustProcess,
    setting: Setting,
    lock: str,
    fault: str = "rush",
    own_report: str = "",
) -> Run:
    """One rush under one lock, compared with the verdict expected of it. Raises StackError.

    If the nodes record, the judge decides from their records instead of Locust's.

    own_report  the file that Locust's own report goes to
    """
    stack.settle_for(lock)
    before = stack.keys_on_lock_servers() if stack.record else set()
    run = buyers.rush(
        [node.url for node in stack.nodes],
        **setting.rush,
        lock=lock,
        restock_token=stack.token,
        history=str(stack.records / BUYERS) if stack.record else "",
        report=own_report,
    )
    if stack.record:
        asked = Asked(
            stock=setting.stock,
            buyers=[f"{run['attempts']}/buyer-{number}" for number in range(setting.buyers)],
            arrived=int(run["arrived"]),
            lock=lock,
            product=setting.product,
            sale=int(run["sale"]),
            recorded=True,
            undisturbed=True,
        )
        run |= judged_with_history(stack, asked, before).as_run()
        judge_cut_short(run)
    return compared(run, fault)


def compared(run: Mapping[str, Any], fault: str = "rush") -> Run:
    """A rush compared with the verdict that is expected of its lock."""
    expected = EXPECTED[run["lock"]][fault]
    as_expected = run["verdict"] == expected
    found = {**run, "fault": fault, "expected": expected, "as_expected": as_expected}
    if not as_expected and expected == "oversold" and run["buyers"] <= run["initial_stock"]:
        found["why"] = (
            f"{run['buyers']} buyers for {run['initial_stock']} units are too few to oversell: "
            "let more buyers come than there are units"
        )
    return cast(Run, found)
