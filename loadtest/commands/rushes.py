"""The commands `demo` and `matrix`: the rush under three locks, or under every strategy.

In a rush, many buyers try to buy few units at the same moment. A strategy is a way to guard the
stock against them. A run is one rush under one strategy, with its figures and its verdict.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from typing import IO, Any, cast

from rich.console import Console

from loadtest.commands.output import Output
from loadtest.expected import EXPECTED, get_expected_rush_verdict, get_lowest_deadline_seconds
from loadtest.judge.history import Event
from loadtest.judge.run import Run, Summary
from loadtest.load.plan import LoadOptions
from loadtest.report import html_report, tables
from loadtest.report.tables import ONE_PROCESS
from loadtest.rush.judge_rush import judge_rush, mark_incomplete_as_unknown
from loadtest.rush.locust.locust_process import BUYERS_HISTORY, LocustProcess
from loadtest.rush.plan import RushPlan
from loadtest.stack.client import Shop, StrategyFacts, explain_unavailability
from loadtest.stack.databases import DATABASES, POSTGRES, choose_database
from loadtest.stack.open_files import raise_file_limit
from loadtest.stack.stack import SERVERS, SPARE_THREADS, STRATEGIES_WITH_EXTRAS, Stack
from loadtest.target.judging_scope import describe_judging_scope
from servers import embedded
from servers.waiting import wait_for

#: The strategies of the demo: no lock, the lock of article A1 (docs/sources.md), and RedisLock.
DEMO_LOCKS = ("none", "token", "redis")
#: The demo on SQLite: no transaction, a transaction without a lock, and RedisLock.
DEMO_LOCKS_ON_SQLITE = ("autocommit", "none", "redis")
#: A key on the lock server counts as leaked if it still exists after this time. Before that, the
#: command that deletes it may not have arrived.
LEAKED_KEY_TIMEOUT_SECONDS = 1.0
#: The orders are read again this long after the last rush. Later changes are not noticed.
REREAD_AFTER_SECONDS = 1.0
#: The name of a violation: the orders of a sale changed after it was judged.
CHANGED_LATER = "changed_later"
#: The name of a violation: the stock of a judged sale changed when the sale was closed.
LOST_AT_CLOSE = "lost_at_close"
#: The legend of the demo's table, and what to do next.
DEMO_LEGEND = """
oversold: orders beyond the stock; lost updates: decrements that another write erased
p50 ms: half of the buyers had their last answer within this time
report.html has the charts, for a browser; make serve has a page with a Start button
"""
#: The reason why the verdicts on SQLite differ from those on a database server.
SQLITE_NOTE = """
SQLite's transactions are serializable: none, which sells in a transaction, is exact here and
oversells on PostgreSQL and MySQL. Without a transaction (autocommit) it oversells here, too.
"""
MATRIX_LEGEND = """
lost updates: decrements that another write erased
p50 ms, p95 ms: half of the buyers, and 95 of 100, had their last answer within this time
time / row-lock: seconds of the rush, divided by those of row-lock (SELECT FOR UPDATE)"""


@dataclass(frozen=True, slots=True)
class RushOptions:
    """The options of `demo`, `matrix` and `serve`.

    locks              the names of the strategies; empty: all
    hold_ms            milliseconds between check and decrement
    nodes              the number of application servers
    workers            the number of processes of each node
    deadline           seconds after which buyers give up; make_plan() raises it if a strategy needs
                       more time on the database
    own_strategy_file  the file of the user's own strategy, which `serve` adds as `mine`
    server             the HTTP server of the nodes, one of SERVERS
    database           the database of the shop, one of DATABASES
    locust_workers     the number of Locust's processes, which run the buyers
    """

    locks: Sequence[str] = DEMO_LOCKS
    buyers: int = RushPlan.buyers
    stock: int = RushPlan.stock
    hold_ms: int = RushPlan.hold_ms
    nodes: int = 2
    workers: int = 2
    deadline: float = RushPlan.deadline
    own_strategy_file: str = ""
    server: str = SERVERS[0]
    database: str = POSTGRES
    locust_workers: int = 1

    @property
    def threads(self) -> int:
        """The threads of each worker: one per buyer of its node, and SPARE_THREADS.

        One worker may get all connections of its node, so it needs a thread for each of them. The
        spare threads are for requests that are not purchases.
        """
        return ceil(self.buyers / self.nodes) + SPARE_THREADS

    def make_plan(
        self, lock: str, hosts: Sequence[str], restock_token: str, *, locust_report: str = ""
    ) -> RushPlan:
        """Return the plan of a rush on one strategy of the shop whose nodes are at `hosts`."""
        return RushPlan(
            hosts=hosts,
            buyers=self.buyers,
            stock=self.stock,
            deadline=max(self.deadline, get_lowest_deadline_seconds(lock, self.database)),
            lock=lock,
            hold_ms=self.hold_ms,
            restock_token=restock_token,
            locust_report=locust_report,
        )


def demo(console: Console, **options: Any) -> int:
    """Run the rush under each lock, print the table, and write the results.

    In a rush, many buyers try to buy few units at the same moment. On SQLite, the default locks are
    DEMO_LOCKS_ON_SQLITE.

    Returns 0 if every verdict was the expected one, else 1. Raises StackError, whose message says
    what to do, and EmbeddedError if a server does not start.

    options  the fields of RushOptions
    """
    rush_options = choose_database_of_options(RushOptions(**options))
    is_on_sqlite = DATABASES[rush_options.database].vendor == "sqlite"
    if is_on_sqlite and tuple(rush_options.locks) == DEMO_LOCKS:
        rush_options = replace(rush_options, locks=DEMO_LOCKS_ON_SQLITE)
    with Output(console) as out:
        summary, events = rush_each_strategy(rush_options, out, is_demo=True)
        table = tables.markdown(summary, tables.DEMO_COLUMNS)
        filename = make_results_filename("demo", rush_options.database)
        out.write_results(summary, events, filename, table, title="the rush")
    console.print()
    runs = summary["runs"]
    sheet = tables.make_sheet(runs, tables.DEMO_COLUMNS)
    legend = DEMO_LEGEND
    if is_on_sqlite:
        legend = SQLITE_NOTE + DEMO_LEGEND
    return out.print_conclusion(
        sheet, tables.explain_unexpected(runs), legend, html_report.FILENAME
    )


def choose_database_of_options(rush_options: RushOptions) -> RushOptions:
    """Read .env, and return the options with the database of DATABASE_URL, if that is set.

    Raises StackError if DATABASE_URL and --database do not fit each other.
    """
    embedded.read_env()
    url = os.environ.get("DATABASE_URL", "")
    return replace(rush_options, database=choose_database(rush_options.database, url))


def make_results_filename(command: str, database: str) -> str:
    """Return the name of the file for a command's table.

    It is demo.md on PostgreSQL, and demo-sqlite.md with --database sqlite.
    """
    return f"{command}.md" if database == POSTGRES else f"{command}-{database}.md"


def matrix(console: Console, *, locks: Sequence[str] = (), **options: Any) -> int:
    """Run the rush under every strategy, print the table, and write the results; see demo().

    In a rush, many buyers try to buy few units at the same moment. A strategy for which EXPECTED
    has a verdict on a single process gets two rushes: one against several processes of the shop,
    and one against a single process.
    """
    rush_options = choose_database_of_options(RushOptions(locks=locks, **options))
    with Output(console) as out:
        summary, events = rush_each_strategy(rush_options, out)
        locks_that_ran = dict.fromkeys(
            run["lock"]
            for run in summary["runs"]
            if run["verdict"] != "not_run" and run["fault"] != ONE_PROCESS
        )
        locks_in_one_process = [lock for lock in locks_that_ran if ONE_PROCESS in EXPECTED[lock]]
        if locks_in_one_process:
            one_process_options = replace(
                rush_options, locks=locks_in_one_process, nodes=1, workers=1
            )
            one_process_summary, one_process_events = rush_each_strategy(one_process_options, out)
            summary["runs"] = [*summary["runs"], *one_process_summary["runs"]]
            events += one_process_events
        table = tables.markdown(summary, tables.MATRIX_COLUMNS)
        filename = make_results_filename("matrix", rush_options.database)
        out.write_results(summary, events, filename, table, title="every strategy under the rush")
    runs = summary["runs"]
    unexpected_count = sum(not run["as_expected"] for run in runs)
    legend = f"{MATRIX_LEGEND}\n\n[bold]{len(runs)} runs, {unexpected_count} unexpected[/]"
    sheet = tables.make_sheet(runs, tables.MATRIX_COLUMNS)
    return out.print_conclusion(
        sheet, tables.explain_unexpected(runs), legend, html_report.FILENAME
    )


@contextmanager
def run_stack_and_locust(
    rush_options: RushOptions,
    *,
    log: IO[bytes],
    progress: Callable[[str], None],
    **stack_options: Any,
) -> Iterator[tuple[Stack, LocustProcess]]:
    """Run a shop with its servers, and Locust for the buyers of its rushes, during a `with` block.

    In a rush, many buyers try to buy few units at the same moment.

    Yields the Stack (the servers and nodes of the shop) and the Locust process. Raises
    EmbeddedError if one of them does not start, and StackError if a process may not open as many
    files as a rush needs.

    stack_options  further options of Stack
    """
    processes = rush_options.locust_workers
    raise_file_limit(
        ceil(rush_options.buyers / processes),
        process=f"Locust with {rush_options.buyers} buyers in {processes} processes",
        advice=f"use more processes: --locust-workers {2 * processes}",
    )
    raise_file_limit(
        rush_options.threads,
        process=f"a node with {rush_options.threads} buyers",
        advice="use more nodes (--nodes)",
    )
    with ExitStack() as exit_stack:
        locust = exit_stack.enter_context(LocustProcess(log, workers=processes))
        stack = Stack(
            node_count=rush_options.nodes,
            workers=rush_options.workers,
            threads=rush_options.threads,
            server=rush_options.server,
            database=rush_options.database,
            log=log,
            progress=progress,
            **stack_options,
        )
        stack.watched_servers.append(locust)
        exit_stack.enter_context(stack)
        # Register Locust a second time, so that it ends before the stack and no node waits for it.
        # The first registration ends Locust if the stack does not start.
        exit_stack.push(locust)
        yield stack, locust


def rush_each_strategy(
    rush_options: RushOptions, out: Output, *, is_demo: bool = False
) -> tuple[Summary, list[Event]]:
    """Run the rush under each strategy. Return the summary of the runs, and all recorded events.

    In a rush, many buyers try to buy few units at the same moment. A run is one rush, with its
    figures and its verdict. The nodes of the shop record their purchases as events, and so do the
    buyers. A strategy that is unavailable gets the verdict `not_run`. Raises the same errors as
    run_stack_and_locust() and run_rush().

    is_demo  whether to print each verdict at once, and to keep Locust's own report of each rush
    """
    runs_all_strategies = not rush_options.locks
    # The extras are servers that only some strategies need.
    needs_extras = runs_all_strategies or not STRATEGIES_WITH_EXTRAS.isdisjoint(rush_options.locks)
    with run_stack_and_locust(
        rush_options, log=out.log, progress=out.progress, extras=needs_extras, record=True
    ) as (stack, locust):
        strategies = stack.run_while_alive(lambda: stack.strategies(rush_options.locks))
        runs: list[Run] = []
        for number, strategy in enumerate(strategies, 1):
            lock = strategy["name"]
            size = f"{rush_options.buyers} buyers, {rush_options.stock} units"
            out.progress(f"{number}/{len(strategies)}  {size}, lock: {lock}")
            locust_report = str(out.path / f"{lock}.html") if is_demo else ""
            run = _run_rush_if_available(stack, locust, rush_options, strategy, locust_report)
            runs.append(run)
            if is_demo:
                out.console.print(f"{lock:8} {tables.make_verdict_markup(run)}")

        def reread_and_summarize() -> tuple[Summary, list[Event]]:
            # If the orders have changed since a rush was judged, its verdict is wrong.
            time.sleep(REREAD_AFTER_SECONDS)
            reread_sales(stack.shop(), runs)
            return out.make_summary(stack, runs), stack.events()

        return stack.run_while_alive(reread_and_summarize)


def _run_rush_if_available(
    stack: Stack,
    locust: LocustProcess,
    rush_options: RushOptions,
    strategy: StrategyFacts,
    locust_report: str,
) -> Run:
    """Run one rush (many buyers at the same moment), and return its run: figures and verdict.

    If the strategy is unavailable, there is no rush, and the verdict is `not_run`. If the shop
    describes the strategy wrongly, the run also gets that complaint (see add_complaint).
    """
    if strategy["available"]:
        run = run_rush(stack, locust, rush_options, strategy["name"], locust_report)
        return add_complaint(run, strategy)
    run = make_unavailable_run(strategy)
    run["buyers"] = rush_options.buyers
    run["initial_stock"] = rush_options.stock
    run["hold_ms"] = rush_options.hold_ms
    return run


def make_unavailable_run(strategy: StrategyFacts) -> Run:
    """Return the run of a strategy that is unavailable, with the verdict `not_run`.

    The run is as expected if the strategy does not exist on this database. If a server that the
    strategy needs is missing, the run is as expected only outside CI. If the shop describes the
    strategy wrongly, the run is never as expected; see add_complaint().
    """
    run = {
        "lock": strategy["name"],
        "fault": "rush",
        "verdict": "not_run",
        "expected": EXPECTED[strategy["name"]]["rush"],
        "as_expected": not strategy.get("exists", True) or not os.environ.get("CI"),
        "why": explain_unavailability(strategy),
    }
    return add_complaint(cast(Run, run), strategy)


def add_complaint(run: Run, strategy: StrategyFacts) -> Run:
    """Return the run, with the strategy's complaint as a finding if there is one.

    The complaint says how the shop's description of the strategy differs from the expected one. A
    run with a complaint is not as expected.
    """
    complaint = strategy.get("complaint")
    if not complaint:
        return run
    findings = [*run.get("findings", ()), complaint]
    return cast(Run, {**run, "findings": findings, "as_expected": False})


def run_rush(
    stack: Stack,
    locust: LocustProcess,
    rush_options: RushOptions,
    lock: str,
    locust_report: str = "",
) -> Run:
    """Run one rush (many buyers at the same moment) under one strategy.

    Return its run: the figures, the verdict and the expected verdict.

    If the nodes record their purchases, the judge uses these records in addition to the buyers'
    requests. Raises ShopUnreachable, OSError, and StackError if a server ended during the rush.

    lock           the name of the strategy
    locust_report  the file for Locust's own report; if it is empty, Locust writes none
    """
    hosts = [node.url for node in stack.nodes]
    plan = rush_options.make_plan(lock, hosts, stack.token, locust_report=locust_report)
    stack.start_order_consumers_for(lock)

    def run_and_judge() -> dict[str, Any]:
        if stack.record:
            return _run_recorded_rush(stack, locust, plan)
        return locust.run_rush(plan)

    run = stack.run_while_alive(run_and_judge)
    return add_expected_verdict(run, get_fault_of_rush(lock, rush_options), rush_options.database)


def get_fault_of_rush(lock: str, options: RushOptions | LoadOptions) -> str:
    """Return the column of EXPECTED that has the verdict on a rush: the run's field `fault`.

    In a rush, many buyers buy at the same moment, without a fault. The column is ONE_PROCESS if the
    shop has a single process and EXPECTED has a verdict on the strategy for that case. Otherwise it
    is `rush`.

    lock  the name of the strategy
    """
    has_one_process = options.nodes * options.workers == 1
    return ONE_PROCESS if has_one_process and ONE_PROCESS in EXPECTED[lock] else "rush"


def _run_recorded_rush(stack: Stack, locust: LocustProcess, plan: RushPlan) -> dict[str, Any]:
    """Run one rush on nodes that record their purchases. Return its run: figures and verdict.

    In a rush, many buyers buy at the same moment. The rush is judged by the records of the buyers
    and of the nodes.
    """
    leaked_keys_before = stack.find_leaked_keys()
    buyers_report = locust.run_unjudged_rush(plan)
    buyers_report.append_to(stack.records / BUYERS_HISTORY)
    events = stack.read_new_events()
    sale = stack.shop().wait_for_settled_sale(buyers_report.sale)

    def find_new_leaked_keys() -> set[str]:
        return stack.find_leaked_keys() - leaked_keys_before

    wait_for(lambda: not find_new_leaked_keys(), LEAKED_KEY_TIMEOUT_SECONDS)
    leaked_keys = find_new_leaked_keys()
    run = judge_rush(
        plan,
        buyers_report,
        events=events,
        opening_stock=sale["initial_stock"],
        stock_left=sale["stock_left"],
        orders=stack.shop().orders(buyers_report.sale),
        unsettled_promises=sale["unsettled"],
        # This project's shop has idempotency keys, lists its orders, and shows its stock.
        judging_scope=describe_judging_scope(repeatable=True, lists_orders=True, shows_stock=True),
        nodes_recorded=True,
        # Stack.find_leaked_keys() returns `<server number>/<database>/<key>`.
        leaked_keys=sorted(key.split("/", 2)[2] for key in leaked_keys),
    )
    mark_incomplete_as_unknown(run)
    return run


def add_expected_verdict(
    run: Mapping[str, Any], fault: str = "rush", database: str = POSTGRES
) -> Run:
    """Return the run with the fields `fault`, `expected` and `as_expected`.

    `expected` is the expected verdict on this database. If the rush was expected to oversell, but
    had no units or not more buyers than units, `why` says that it could not oversell.
    """
    expected_verdict = get_expected_rush_verdict(run["lock"], fault, database)
    as_expected = run["verdict"] == expected_verdict
    compared_run = {**run, "fault": fault, "expected": expected_verdict, "as_expected": as_expected}
    buyers = run["buyers"]
    units = run["initial_stock"]
    if not as_expected and expected_verdict == "oversold" and not 0 < units < buyers:
        compared_run["why"] = (
            f"{buyers} buyers for {units} units cannot oversell: let more buyers come than there "
            "are units, and sell at least one unit"
        )
    return cast(Run, compared_run)


def reread_sales(shop: Shop, runs: Sequence[Any]) -> None:
    """Read the sales of judged runs again, and add a finding to a run for each change.

    If the orders have changed, the run gets the violation `changed_later`. If a sale was closed and
    its stock has changed, the run gets the violation `lost_at_close`. In both cases the verdict
    `exact` becomes `unknown`. If there are more orders than units now, `unknown` becomes
    `oversold`. Raises ShopUnreachable.
    """
    for run in runs:
        # A run of `load` has a sale for each of its products, any other run has one sale.
        sales = run.get("products")
        if not sales:
            sales = [
                {
                    "sale": run.get("sale"),
                    "orders": run.get("orders"),
                    "left": run.get("stock_left"),
                }
            ]
        for judged_sale in sales:
            if judged_sale["sale"] is not None and judged_sale["left"] is not None:
                _add_changes_of_sale(run, judged_sale, shop.sale(int(judged_sale["sale"])))


def _add_changes_of_sale(
    run: Any, judged_sale: Mapping[str, Any], sale_now: Mapping[str, Any]
) -> None:
    """Add the changes of one sale to its run; see reread_sales().

    judged_sale  what the run was judged by: the number of the `sale`, the number of its `orders`,
                 and its stock `left`
    sale_now     the shop's present report of the sale
    """
    sale = int(judged_sale["sale"])
    orders = judged_sale["orders"]
    units_left = judged_sale["left"]
    # The shop's report counts ordered units as `orders`. If an order has several units, for which
    # the judge has found the violation `wrong_amount`, the two numbers differ without any change.
    if sale_now["orders"] != orders and "wrong_amount" not in run["violations"]:
        finding = f"sale {sale} had {orders} orders, and has {sale_now['orders']} now"
        _add_finding(run, CHANGED_LATER, finding)
        surplus_orders = sale_now["orders"] - sale_now["initial_stock"]
        if run["verdict"] == "unknown" and surplus_orders > 0:
            run["verdict"] = "oversold"
            run["why"] = ""
            run["oversold"] = run.get("oversold", 0) + surplus_orders
            run["orders"] = run.get("orders", 0) + sale_now["orders"] - orders
    if not sale_now["open"] and sale_now["stock_left"] != units_left:
        finding = (
            f"sale {sale} had {units_left} units left, and was closed with {sale_now['stock_left']}"
        )
        _add_finding(run, LOST_AT_CLOSE, finding)


def _add_finding(run: Any, rule: str, finding: str) -> None:
    """Add a finding, and the name of the violated rule, to a run that was judged before.

    The run is no longer as expected, and the verdict `exact` becomes `unknown`.
    """
    run["findings"] = [*run.get("findings", ()), finding]
    run["violations"] = [*run["violations"], rule]
    run["as_expected"] = False
    if run["verdict"] == "exact":
        run["verdict"] = "unknown"
        run["why"] = finding
