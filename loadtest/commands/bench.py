"""The rush under `redis` compared with other locks and with the floor, in interleaved rounds.

The floor is the least that a correct rush can take here: the requests of all buyers to a view that
does nothing, and as many commits as there are units, one after another on one raw connection.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from statistics import median

import psycopg
from rich.console import Console
from rich.table import Table

from loadtest.commands.run import Setting, output, rush, stack_and_buyers
from loadtest.judge.run import Run, Summary
from loadtest.report import tables as report
from loadtest.rush.form import REFUSED_HOLD_MS
from loadtest.stack.stack import Stack, StackError

LOCKS = ("none", "token", "row-lock", "redis")
HTTP, COMMITS, FLOOR = "no-op requests", "raw commits", "floor"


def run(setting: Setting, console: Console) -> int:
    """Print medians and ratios, write summary.json.

    Returns 1 if a rush had an unexpected verdict, else 0. Raises StackError when a part does not
    start.
    """
    with (
        output(console, verbose=setting.verbose) as out,
        stack_and_buyers(setting, out, extras=False) as (stack, buyers),
    ):
        seconds: dict[str, list[float]] = {name: [] for name in (HTTP, COMMITS, *LOCKS)}
        runs: list[Run] = []
        for number in range(1, setting.repeat + 1):
            out.progress(f"round {number} of {setting.repeat}")
            for name in random.sample(list(seconds), len(seconds)):
                if name == COMMITS:
                    took = raw_commits(stack, setting.stock)
                elif name == HTTP:
                    took = rush(buyers, replace(setting, hold_ms=REFUSED_HOLD_MS), "none")[
                        "duration_s"
                    ]
                else:
                    runs.append({**rush(buyers, setting, name), "round": number})
                    took = runs[-1]["duration_s"]
                seconds[name].append(took)
        seconds[FLOOR] = [sum(pair) for pair in zip(seconds[HTTP], seconds[COMMITS], strict=True)]
        summary: Summary = {
            **out.summary(stack, runs),
            "rounds": setting.repeat,
            "median_s": {name: round(median(values), 3) for name, values in seconds.items()},
            "redis_to": {
                name: round(median(_ratios(seconds["redis"], values)), 3)
                for name, values in seconds.items()
            },
            "seconds": seconds,
        }
        report.write_summary(out.folder.path, summary)
        out.finish()
    console.print(_table(summary))
    out.print_files("summary.json")
    return 0 if all(one["as_expected"] for one in runs) else 1


def raw_commits(stack: Stack, units: int) -> float:
    """Seconds for so many sales of one unit, one after another on one connection, no Django."""
    with psycopg.connect(stack.database_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS floor_stock (amount int NOT NULL)")
        connection.execute("CREATE TABLE IF NOT EXISTS floor_order (id bigserial PRIMARY KEY)")
        connection.execute("TRUNCATE floor_stock, floor_order")
        connection.execute("INSERT INTO floor_stock VALUES (%s)", [units])
        connection.commit()
        began = time.monotonic()
        for _ in range(units):
            connection.execute("SELECT amount FROM floor_stock FOR UPDATE")
            connection.execute("UPDATE floor_stock SET amount = amount - 1")
            connection.execute("INSERT INTO floor_order DEFAULT VALUES")
            connection.commit()
        took = time.monotonic() - began
        left = connection.execute("SELECT amount FROM floor_stock").fetchone()
        if left != (0,):
            raise StackError(f"the raw sale left {left} units instead of none: run it again")
    return took


def _ratios(redis: list[float], others: list[float]) -> list[float]:
    """For each round: the time of `redis` divided by that of the other."""
    return [one / other for one, other in zip(redis, others, strict=True)]


def _table(summary: Summary) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rush", "median s", "redis takes"):
        shown.add_column(name, justify="left" if name == "rush" else "right")
    for name, seconds in summary["median_s"].items():
        shown.add_row(name, f"{seconds:.3f}", f"{summary['redis_to'][name]:.2f} x")
    return shown
