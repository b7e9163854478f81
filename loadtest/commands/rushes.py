"""The rush under each lock: the contrast without a lock and with one, and every strategy."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from typing import IO, Any, cast

from rich.console import Console

from loadtest.commands.output import Output
from loadtest.expected import EXPECTED
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.judge.verdict import Judgement
from loadtest.report import html as html_report
from loadtest.report import tables as report
from loadtest.report.tables import ONE_PROCESS
from loadtest.rush.bounds import allow
from loadtest.rush.figures import judge_cut_short
from loadtest.rush.locust_process import BUYERS, LocustProcess
from loadtest.stack.client import Shop, Strategy
from loadtest.stack.stack import NEED_EXTRAS, SERVERS, SPARE_THREADS, Stack
from servers.registry import wait_for

#: Without a lock, with A1's, with RedisLock.
CONTRAST = ("none", "token", "redis")
#: Seconds until the last keys have to be gone: a release may be on its way.
GONE_WITHIN = 1.0
#: What the words of the table mean, and what to do next.
NEXT = """
oversold: orders beyond the stock; lost updates: decrements that another write erased
next: open report.html in a browser; make serve for a page with a Start button
"""
LEGEND = """
lost updates: decrements that another write erased
time / row-lock: seconds of the rush, divided by those of row-lock (SELECT FOR UPDATE)"""


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


def demo(console: Console, **given: Any) -> int:
    """Run the rush under each lock, print the table, write the results; `given` are fields of
    Setting.

    Returns 0 if every verdict was the expected one, else 1. Raises StackError, with what to do, and
    EmbeddedError when a part does not start.
    """
    setting = Setting(**given)
    with Output(console) as out:
        summary, events = rush_each(setting, out, shown=True)
        table = report.markdown(summary, report.DEMO)
        out.write(summary, events, "demo.md", table, title="the rush")
    console.print()
    runs = summary["runs"]
    sheet = report.sheet(runs, report.DEMO)
    return out.conclude(sheet, report.reasons(runs), NEXT, html_report.NAME)


def matrix(console: Console, *, locks: Sequence[str] = (), **given: Any) -> int:
    """The same under every strategy, and in a single process under those of which another verdict
    is expected there."""
    setting = Setting(locks=locks, **given)
    with Output(console) as out:
        summary, events = rush_each(setting, out)
        ran = dict.fromkeys(one["lock"] for one in summary["runs"] if one["verdict"] != "not_run")
        if alone := [lock for lock in ran if ONE_PROCESS in EXPECTED[lock]]:
            single = replace(setting, locks=alone, nodes=1, workers=1)
            more, more_events = rush_each(single, out, fault=ONE_PROCESS)
            summary["runs"] = [*summary["runs"], *more["runs"]]
            events += more_events
        table = report.markdown(summary, report.MATRIX)
        out.write(summary, events, "matrix.md", table, title="every strategy under the rush")
    runs = summary["runs"]
    off = sum(not one["as_expected"] for one in runs)
    legend = f"{LEGEND}\n\n[bold]{len(runs)} runs, {off} verdicts off[/]"
    sheet = report.sheet(runs, report.MATRIX)
    return out.conclude(sheet, report.reasons(runs), legend, html_report.NAME)


@contextmanager
def stack_and_buyers(
    setting: Setting, *, log: IO[bytes], progress: Callable[[str], None], **more: Any
) -> Iterator[tuple[Stack, LocustProcess]]:
    """The stack for a setting, with `more` as in Stack, and a Locust that starts meanwhile. Raises
    EmbeddedError when a part does not start, StackError when a process may not open as many files
    as a rush needs."""
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
            count=setting.nodes,
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
    setting: Setting, out: Output, *, fault: str = "rush", shown: bool = False
) -> tuple[Summary, list[Event]]:
    """The rush under each lock, or under each that there is, on recording nodes. One whose server
    is not installed is `not_run`. Returns the summary and all that was recorded.

    shown  print each verdict at once, and keep Locust's own report of each rush
    """
    extras = not setting.locks or not NEED_EXTRAS.isdisjoint(setting.locks)
    with stack_and_buyers(
        setting, log=out.log, progress=out.progress, extras=extras, record=True
    ) as (stack, buyers):
        known = {one["name"]: one for one in stack.shop().strategies()}
        locks = setting.locks or list(known)
        runs: list[Run] = []
        for number, lock in enumerate(locks, 1):
            size = f"{setting.buyers} buyers, {setting.stock} units"
            out.progress(f"{number}/{len(locks)}  {size}, lock: {lock}")
            if known[lock]["available"]:
                own_report = str(out.path / f"{lock}.html") if shown else ""
                runs.append(rush(stack, buyers, setting, lock, fault, own_report))
            else:
                asked = {"initial_stock": setting.stock, "hold_ms": setting.hold_ms}
                runs.append(not_run(known[lock], buyers=setting.buyers, **asked))
            if shown:
                out.console.print(f"{lock:8} {report.verdict_cell(runs[-1])}")
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
    """One rush under one lock, compared with the verdict expected of it. Raises StackError,
    ShopUnreachable, OSError.

    If the nodes record, the judge decides from their records instead of Locust's.

    own_report  the file that Locust's own report goes to
    """
    stack.settle_for(lock)
    before = stack.leaked_keys() if stack.record else set()
    run = buyers.rush(
        [node.url for node in stack.nodes],
        **setting.rush,
        lock=lock,
        restock_token=stack.token,
        history=str(stack.records / BUYERS) if stack.record else "",
        report=own_report,
    )
    if stack.record:
        events, sale = stack.new_events(), stack.shop().settled_sale(run["sale"])
        wait_for(lambda: stack.leaked_keys() <= before, GONE_WITHIN)
        leaked = sorted(key.split("/", 2)[2] for key in stack.leaked_keys() - before)
        judgement = Judgement(
            events=events,
            initial_stock=setting.stock,
            opened=sale["initial_stock"],
            stock_left=sale["stock_left"],
            orders=stack.shop().orders(run["sale"]),
            leaked=leaked,
            unsettled=sale["unsettled"],
            buyers=[f"{run['attempts']}/buyer-{number}" for number in range(setting.buyers)],
            arrived=run["arrived"],
            lock=lock,
            product=setting.product,
            sale=run["sale"],
            recorded=True,
            undisturbed=True,
        )
        run |= judgement.as_run()
        judge_cut_short(run)
    return compared(run, fault)


def compared(run: Mapping[str, Any], fault: str = "rush") -> Run:
    """A rush compared with the verdict that is expected of its lock."""
    expected = EXPECTED[run["lock"]][fault]
    as_expected = run["verdict"] == expected
    found = {**run, "fault": fault, "expected": expected, "as_expected": as_expected}
    buyers, units = run["buyers"], run["initial_stock"]
    if not as_expected and expected == "oversold" and not 0 < units < buyers:
        found["why"] = (
            f"{buyers} buyers for {units} units cannot oversell: let more buyers come than there "
            "are units, and give at least one"
        )
    return cast(Run, found)


def judge_closed(shop: Shop, runs: Sequence[Any]) -> None:
    """Look again at the sales of these runs that have been closed since they were judged: what was
    left then is what was left at the close, also of what lay in buckets or in rows of units.

    A run whose units vanished is `unknown`, with the finding `lost_at_close`, unless it is worse.
    Raises ShopUnreachable.
    """
    for run in runs:
        whole = {"sale": run.get("sale"), "left": run.get("stock_left")}
        for one in run.get("products") or [whole]:
            sale, left = one["sale"], one["left"]
            if sale is None or left is None:
                continue
            now = shop.sale(int(sale))
            if now["open"] or now["stock_left"] == left:
                continue
            what = f"sale {sale} had {left} units left, and was closed with {now['stock_left']}"
            run["findings"] = [*run.get("findings", ()), what]
            run["violations"] = [*run["violations"], "lost_at_close"]
            run["as_expected"] = False
            if run["verdict"] == "exact":
                run |= {"verdict": "unknown", "why": what}
