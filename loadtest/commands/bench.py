"""The rush under `redis` beside other ways and beside the floor, interleaved in one run.

The floor is what a correct rush cannot go below here: the requests of all buyers to a view that
does nothing, and as many commits as there are units, one after another on one raw connection.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import replace
from statistics import median

import psycopg
from rich.console import Console
from rich.table import Table

from loadtest.commands import demo
from loadtest.commands.demo import Progress, Setting
from loadtest.expected import EXPECTED
from loadtest.report import tables as report
from loadtest.rush.locust_process import Buyers
from loadtest.stack.results import RESULTS, now, result_folder
from loadtest.stack.stack import Stack, StackError

LOCKS = ("none", "token", "row-lock", "redis")
HTTP, COMMITS, FLOOR = "no-op requests", "raw commits", "floor"
#: A purchase with this hold is refused before anything is asked of a backend.
REFUSED = -1


def run(setting: Setting, console: Console) -> int:
    """Print medians and ratios, write rush.json. 1 if a rush had an unexpected verdict.

    Raises StackError when a part does not start.
    """
    started = now()
    with ExitStack() as everything:
        progress = everything.enter_context(Progress(console, verbose=setting.verbose))
        folder = everything.enter_context(result_folder(started))
        stack = everything.enter_context(demo.stack_for(setting, folder, progress, extras=False))
        buyers = everything.enter_context(Buyers(stack, log=folder.log, stay=True))
        seconds: dict[str, list[float]] = {name: [] for name in (HTTP, COMMITS, *LOCKS)}
        surprises = []
        for number in range(setting.repeat):
            progress(f"round {number + 1} of {setting.repeat}")
            for name in random.sample(list(seconds), len(seconds)):
                if name == COMMITS:
                    seconds[name].append(raw_commits(stack, setting.stock))
                    continue
                what = (name, setting) if name in LOCKS else ("none", _refused(setting))
                one = demo.rush(buyers, what[1], what[0], EXPECTED[what[0]]["rush"])
                seconds[name].append(one["duration_s"])
                if name in LOCKS and not one["as_expected"]:
                    surprises.append(one)
        seconds[FLOOR] = [sum(pair) for pair in zip(seconds[HTTP], seconds[COMMITS], strict=True)]
        summary = {
            "started": started.isoformat(timespec="seconds"),
            **demo.summary_of(stack, setting),
            "rounds": setting.repeat,
            "median_s": {name: round(median(values), 3) for name, values in seconds.items()},
            "redis_to": {
                name: round(median(_ratios(seconds["redis"], values)), 3)
                for name, values in seconds.items()
            },
            "seconds": seconds,
            "surprises": surprises,
        }
        report.write_summary(folder.path / "rush.json", summary)
        kept = folder.finish()
    console.print(_table(summary))
    console.print(f"{kept.relative_to(RESULTS.parent)}/rush.json", highlight=False)
    return 1 if surprises else 0


def raw_commits(stack: Stack, units: int) -> float:
    """Seconds for as many sales of one unit, one after another on one connection, no Django."""
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
            raise StackError(f"the raw sale left {left} instead of nothing")
    return took


def _refused(setting: Setting) -> Setting:
    return replace(setting, hold_ms=REFUSED)


def _ratios(redis: list[float], others: list[float]) -> list[float]:
    """Of each round: what `redis` took by what the other took."""
    return [one / other for one, other in zip(redis, others, strict=True)]


def _table(summary: dict[str, object]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rush", "median s", "redis takes"):
        shown.add_column(name, justify="left" if name == "rush" else "right")
    medians, ratios = summary["median_s"], summary["redis_to"]
    assert isinstance(medians, dict)
    assert isinstance(ratios, dict)
    for name, seconds in medians.items():
        shown.add_row(name, f"{seconds:.3f}", f"{ratios[name]:.2f} x")
    return shown
