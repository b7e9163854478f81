"""The table of a load run, for the terminal and for docs/scale.md."""

from collections.abc import Sequence
from functools import reduce
from operator import getitem
from statistics import median
from typing import Any

from loadtest.judge.run import Summary
from loadtest.report import tables as report

NAME = "load.md"
LEGEND = """
p50, p99 ms: time to answer, of the buyers who arrived while it was measured
p99 / p50: how unevenly they wait
Jain: 1 if every client bought as many units, 1/n if one of n bought all
CPU ms: processor time a sold unit, of the nodes, PostgreSQL, Valkey and Locust
errors: answers that were neither sold nor sold_out, in the round with most of them"""
#: Where a run has each figure, which may be None, and how it is written.
FIGURES = {
    "sold/s": ("sold_per_s", ".0f"),
    "p50 ms": ("answer_ms p50", ".0f"),
    "p99 ms": ("answer_ms p99", ".0f"),
    "p99 / p50": ("p99_to_p50", ".1f"),
    "Jain": ("jain", ".2f"),
    "errors": ("errors", ".0f"),
    "CPU ms nodes": ("cpu_ms_per_sale nodes", ".2f"),
    "CPU ms PostgreSQL": ("cpu_ms_per_sale PostgreSQL", ".2f"),
    "CPU ms Valkey": ("cpu_ms_per_sale Valkey", ".2f"),
    "CPU ms Locust": ("cpu_ms_per_sale Locust", ".2f"),
    "settled after ms": ("settlement_lag_ms", ".0f"),
}
#: Left out where no strategy has one: of the closed model, and of orders that are written later.
IF_ANY = ("Jain", "settled after ms")


def medians(runs: Sequence[Any]) -> dict[str, dict[str, float | None]]:
    """By strategy: the medians over the rounds. A figure that a round lacks has none. Of errors the
    most in a round: a median would hide one in which the shop hardly sold."""
    found: dict[str, dict[str, float | None]] = {}
    for lock in dict.fromkeys(run["lock"] for run in runs if run["verdict"] != "not_run"):
        found[lock] = {}
        for name, (path, _) in FIGURES.items():
            rounds = (run for run in runs if run["lock"] == lock)
            of_rounds = [reduce(getitem, path.split(), run) for run in rounds]
            known = [one for one in of_rounds if one is not None]
            typical = max if name == "errors" else median
            found[lock][name] = typical(known) if known == of_rounds else None
    return found


def sheet(summary: Summary) -> report.Sheet:
    """One line per strategy: medians over the rounds, and the worst verdict."""
    found, runs = summary["medians"], summary["runs"]
    columns = [
        name
        for name in FIGURES
        if name not in IF_ANY or any(one[name] is not None for one in found.values())
    ]
    rows = []
    for lock in dict.fromkeys(run["lock"] for run in runs):
        of_lock = (run for run in runs if run["lock"] == lock)
        worst = min(of_lock, key=lambda run: run["as_expected"])  # the first that is off, if any
        words = worst["verdict"].replace("_", " ")
        if words == "unknown" and (worst.get("lost_updates") or 0) > 0:
            words = "lost updates"  # what it shows, though it ended before the stock did
        shown: Any = {**worst, "verdict": words}
        texts = [_cell(name, found[lock][name]) if lock in found else "" for name in columns]
        rows.append((shown, texts))
    return report.Sheet(columns, rows)


def markdown(summary: Summary) -> str:
    """The same as Markdown, with where and when it was measured, and the command."""
    words = summary["load"]["given"]
    command = f'make load ARGS="{words}"' if words else "make load"
    return sheet(summary).markdown(f"{_where(summary)}\n\n`{command}`")


def _cell(name: str, value: float | None) -> str:
    """A figure of a strategy. A processor time of 0 was measured: what was not is unknown."""
    if value is None:
        return "unknown" if name.startswith("CPU") else "-"
    return f"{value:{FIGURES[name][1]}}"


def title(summary: Summary) -> str:
    """What was loaded, in a few words."""
    asked = summary["load"]
    who = f"{asked['clients']} clients (closed model)"
    if asked["arrivals_per_second"]:
        who = f"{asked['arrivals_per_second']:g} arrivals a second (open model)"
    what = "One hot product"
    if asked["products"] > 1:
        what = f"{asked['products']} products, Zipf skew {asked['skew']:g}"
    hold = f", hold {asked['hold_ms']} ms" if asked["hold_ms"] else ""
    return f"{what}, {who}{hold}, {_nodes(asked['nodes'])}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _where(summary: Summary) -> str:
    """What was run, on what and when; and of all exact sales together whether each product's stock
    is its orders and what is left."""
    asked, rounds = summary["load"], summary["rounds"]
    processes = asked["locust_workers"]
    runs: Sequence[Any] = summary["runs"]
    sales = [one for run in runs if run["verdict"] == "exact" for one in run["products"]]
    even = sum(one["asked"] == one["orders"] + one["left"] for one in sales)
    orders = sum(one["orders"] for one in sales)
    return (
        f"{'One round' if rounds == 1 else f'Medians of {rounds} interleaved rounds'} of "
        f"{asked['seconds']:g} s, {asked['warm_up']:g} s of warm-up before each; "
        f"{asked['stock']:,} units of each product, hold {asked['hold_ms']} ms; "
        f"{_nodes(asked['nodes'])} of {asked['workers']} workers and {summary['threads']} "
        f"threads, Locust in {processes} process{'es' * (processes > 1)}; "
        f"{report.machine_and_date(summary)}. "
        f"{orders:,} orders in {len(sales)} exact sale{'s' * (len(sales) != 1)}; stock asked = "
        f"orders + left in {even} of {len(sales)}."
    )
