"""Sustained sales: buyers who keep coming, under each strategy in turn, in interleaved rounds."""

from __future__ import annotations

import argparse
import os
import random
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, cast

from rich.console import Console

from loadtest.commands.output import Output, output, require_known
from loadtest.expected import EXPECTED
from loadtest.judge.run import Summary
from loadtest.load import process, products
from loadtest.load.chosen import LOCKS, Chosen
from loadtest.load.figures import Measured, figures
from loadtest.load.judging import judged
from loadtest.load.load_run import LoadRun
from loadtest.load.plan import Plan
from loadtest.report import load_page, load_table
from loadtest.report import tables as report
from loadtest.report.tables import ONE_PROCESS
from loadtest.stack.client import Strategy
from loadtest.stack.stack import Stack
from servers import embedded

#: Connections to PostgreSQL that all nodes may keep: it has 400.
CONNECTIONS = 300
#: Where Locust computes for more than this share of the time, its own limit is what was measured.
SATURATED = 0.95


def chosen(given: argparse.Namespace) -> Chosen:
    """From the command line. Raises StackError for what cannot be loaded."""
    named = {name: getattr(given, name, None) for name in Chosen.__dataclass_fields__}
    named["locks"] = given.lock
    return Chosen(**{name: value for name, value in named.items() if value is not None})


def run(chosen: Chosen, console: Console, *, verbose: bool) -> int:
    """Load each strategy once a round, print the table, write the results.

    Returns 0 if every verdict was the expected one and every measurement succeeded, else 1. Raises
    StackError when a part does not start.
    """
    with (
        output(console, verbose=verbose) as out,
        _stack(chosen, out) as stack,
    ):
        known = {str(one["name"]): one for one in stack.shop().strategies()}
        require_known(chosen.locks, list(known), "lock")
        runs: list[LoadRun] = []
        for number in range(1, chosen.rounds + 1):
            # another order in each round: no strategy always follows the same other one
            shuffled = random.Random(f"{chosen.seed}/{number}").sample(
                list(chosen.locks), len(chosen.locks)
            )
            for lock in shuffled:
                out.progress(f"round {number} of {chosen.rounds}: {lock}")
                one = _load(stack, chosen, known[lock], out)
                runs.append(cast(LoadRun, {**one, "round": number}))
        runs.sort(key=lambda one: (one["round"], chosen.locks.index(one["lock"])))
        summary: Summary = {
            **out.summary(stack, runs),
            "rounds": chosen.rounds,
            "load": {**asdict(chosen), "locks": list(chosen.locks)},
            "medians": medians(runs),
        }
        report.write_summary(out.folder.path, summary)
        (out.folder.path / load_table.NAME).write_text(load_table.markdown(summary))
        load_page.write(out.folder.path, summary)
        out.finish()
    console.print(load_table.table(summary, console))
    report.print_reasons(console, load_table.notes(runs))
    console.print(load_table.LEGEND, style="dim", highlight=False)
    out.print_files("summary.json", load_page.NAME)
    return 0 if all(one["as_expected"] for one in runs) else 1


def _stack(chosen: Chosen, out: Output) -> Stack:
    pool = max(2, CONNECTIONS // (chosen.nodes * chosen.workers))
    return Stack(
        nodes=chosen.nodes,
        workers=chosen.workers,
        threads=chosen.threads_each,
        log=out.folder.log,
        progress=out.progress,
        extras=not set(chosen.locks) <= set(LOCKS),
        environment={"SHOP_DB_POOL": str(pool)} if pool < 20 else None,
    )


def _load(stack: Stack, chosen: Chosen, strategy: Strategy, out: Output) -> dict[str, Any]:
    """One strategy in one round."""
    lock = strategy["name"]
    alone = chosen.nodes * chosen.workers == 1
    fault = ONE_PROCESS if alone and ONE_PROCESS in EXPECTED[lock] else "rush"
    run: dict[str, Any] = {"lock": lock, "fault": fault, "expected": EXPECTED[lock][fault]}
    if not strategy["available"]:
        why = f"{strategy['needs']} is not set, and no such server is installed"
        return {**run, "verdict": "not_run", "as_expected": True, "why": why}
    if strategy["deferred"]:
        stack.settle()
    shop = stack.shop()
    names = products.names(chosen.products)
    sales = [int(shop.restock(product=name, stock=chosen.stock)["sale"]) for name in names]
    plan = Plan(
        id=uuid.uuid4().hex,
        lock=lock,
        products=names,
        sales=sales,
        hosts=[node.url for node in stack.nodes],
        **chosen.demand(),
        pids=pids(stack),
    )
    found = process.run(plan, log=out.folder.log)
    run |= {
        "attempts": plan.id,
        "hold_ms": plan.hold_ms,
        "clients": None if plan.is_open else plan.clients,
        "arrivals_per_second": plan.arrivals_per_second or None,
        **figures(found, clients=plan.clients, is_open=plan.is_open),
        **judged(plan, found.sales, shop, stock=chosen.stock),
    }
    run["buyers"] = len(found.sales)
    return {**run, **conclusion(run, found)}


def conclusion(run: dict[str, Any], found: Measured) -> dict[str, Any]:
    """`as_expected` and `why` of a run. A measurement that failed is never as expected.

    A flawed strategy whose stock did not run out has not oversold yet: lost updates show its flaw.
    """
    if found.why:
        return {"as_expected": False, "why": found.why}
    verdict, expected = run["verdict"], run["expected"]
    if expected == "oversold":
        shown = verdict == "oversold" or run["lost_updates"] > 0
        return {"as_expected": shown, "why": run["why"] if not shown else ""}
    if verdict == expected and (run["locust_busy"] or 0) > SATURATED:
        return {
            "as_expected": True,
            "why": f"Locust computed {run['locust_busy']:.0%} of the time, so its own limit was "
            "measured: give it --locust-workers 2, or more processors",
        }
    return {"as_expected": verdict == expected, "why": run["why"]}


def pids(stack: Stack) -> dict[str, list[int]]:
    """The processes of the nodes, of PostgreSQL and of Valkey; an empty list for servers that are
    not this run's own, of which nothing is known."""
    running = [p for node in stack.nodes for p in (node.process, node.settler) if p is not None]
    postgres = None if os.environ.get("DATABASE_URL") else embedded.postgres_pid()
    valkeys = [] if os.environ.get("REDIS_URL") else stack.valkeys
    return {
        "nodes": [process.pid for process in running],
        "PostgreSQL": [] if postgres is None else [postgres],
        "Valkey": [valkey.pid for valkey in valkeys],
    }


def medians(runs: Sequence[LoadRun]) -> dict[str, dict[str, Any]]:
    """By strategy: the medians over the rounds. A figure that a round lacks has none. Of errors the
    most in a round: a median would hide one in which the shop hardly sold."""
    found: dict[str, dict[str, Any]] = {}
    for lock in dict.fromkeys(run["lock"] for run in runs):
        same = [run for run in runs if run["lock"] == lock and run["verdict"] != "not_run"]
        if same:
            parts = {part for run in same for part in run["cpu_ms_per_sale"]}
            found[lock] = {
                "sold_per_s": _median([run["sold_per_s"] for run in same]),
                "p50": _median([run["answer_ms"]["p50"] for run in same]),
                "p99": _median([run["answer_ms"]["p99"] for run in same]),
                "p99_to_p50": _median([run["p99_to_p50"] for run in same]),
                "jain": _median([run["jain"] for run in same]),
                "errors": max(run["errors"] for run in same),
                "cpu_ms_per_sale": {
                    part: _median([run["cpu_ms_per_sale"].get(part) for run in same])
                    for part in sorted(parts)
                },
            }
    return found


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 3) if known and len(known) == len(values) else None
