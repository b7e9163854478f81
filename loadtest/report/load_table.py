"""The table of a load run, for the terminal and for docs/scale.md."""

from collections.abc import Sequence
from operator import itemgetter
from statistics import median
from typing import Any

from loadtest.judge.finding import format_count
from loadtest.judge.run import Summary
from loadtest.load.plan import WARM_UP_SECONDS
from loadtest.report import tables

FILENAME = "load.md"
LEGEND = """
p50, p99 ms: time to the last answer, of the buyers who arrived in the measured time
p99 / p50: how unevenly the buyers wait
Jain: 1 if every client bought as many units, 1/n if one of n bought all
CPU ms: processor time per sold unit, of the nodes, PostgreSQL, Valkey and Locust
errors: answers that were neither sold nor sold_out, in the round with most of them"""
#: The name of a figure -> the path of keys to it in a run, and its format. The figure may be None.
FIGURES: dict[str, tuple[tuple[str, ...], str]] = {
    "sold/s": (("sold_per_s",), ".0f"),
    "p50 ms": (("answer_ms", "p50"), ".0f"),
    "p99 ms": (("answer_ms", "p99"), ".0f"),
    "p99 / p50": (("p99_to_p50",), ".1f"),
    "Jain": (("jain",), ".2f"),
    "errors": (("errors",), ".0f"),
    "CPU ms nodes": (("cpu_ms_per_sale", "nodes"), ".2f"),
    "CPU ms PostgreSQL": (("cpu_ms_per_sale", "PostgreSQL"), ".2f"),
    "CPU ms Valkey": (("cpu_ms_per_sale", "Valkey"), ".2f"),
    "CPU ms Locust": (("cpu_ms_per_sale", "Locust"), ".2f"),
    "settled after ms": (("settlement_lag_ms",), ".0f"),
}
#: Columns that are omitted if no strategy has the figure. `Jain` exists only in the closed model.
#: `settled after ms` exists only for strategies that promise an order and write it later: it is the
#: time between the two.
OPTIONAL_COLUMNS = ("Jain", "settled after ms")


def compute_medians(runs: Sequence[Any]) -> dict[str, dict[str, float | None]]:
    """Return the median of each figure over the rounds, by strategy.

    The median is None if a round lacks the figure. For `errors` the maximum is returned instead: a
    median would hide a single round in which the shop hardly sold.
    """
    medians_by_strategy: dict[str, dict[str, float | None]] = {}
    for lock in dict.fromkeys(run["lock"] for run in runs if run["verdict"] != "not_run"):
        runs_of_lock = [run for run in runs if run["lock"] == lock]
        medians_by_strategy[lock] = {name: _compute_median(name, runs_of_lock) for name in FIGURES}
    return medians_by_strategy


def _read_figure(run: Any, key_path: Sequence[str]) -> Any:
    """Return the figure of a run that a path of keys, such as `("answer_ms", "p50")`, leads to."""
    for key in key_path:
        run = run[key]
    return run


def _compute_median(name: str, runs_of_strategy: Sequence[Any]) -> float | None:
    """Return the median of one figure over the rounds of a strategy.

    For `errors`, return the maximum instead; compute_medians() gives the reason. Return None if a
    round lacks the figure.

    name  the name of the figure
    """
    key_path, _ = FIGURES[name]
    figures = [_read_figure(run, key_path) for run in runs_of_strategy]
    if None in figures:
        return None
    if name == "errors":
        return float(max(figures))
    return float(median(figures))


def make_sheet(summary: Summary) -> tables.Sheet:
    """Return the table with a row for each strategy: a verdict, and the medians of the figures.

    The verdict is that of the first round with an unexpected verdict. If all verdicts are as
    expected, it is that of the first round.
    """
    figures_by_strategy = summary["medians"]
    runs = summary["runs"]
    columns = [
        name
        for name in FIGURES
        if name not in OPTIONAL_COLUMNS
        or any(figures[name] is not None for figures in figures_by_strategy.values())
    ]
    rows = []
    for lock in dict.fromkeys(run["lock"] for run in runs):
        runs_of_lock = (run for run in runs if run["lock"] == lock)
        # min() returns the first run whose `as_expected` is False, because False is less than True.
        # If there is none, it returns the first run.
        worst_run = min(runs_of_lock, key=itemgetter("as_expected"))
        figures = figures_by_strategy.get(lock)
        texts = [_format_figure(name, figures[name]) if figures else "" for name in columns]
        displayed_run: Any = {**worst_run, "verdict": _describe_verdict(worst_run)}
        rows.append((displayed_run, texts))
    return tables.Sheet(columns, rows)


def _describe_verdict(run: Any) -> str:
    """Return the verdict in words.

    `unknown` is replaced by `lost updates` if the run lost updates. Such a run ended before its
    stock had run out, so its strategy had no chance to oversell.
    """
    if run["verdict"] == "unknown" and (run.get("lost_updates") or 0) > 0:
        return "lost updates"
    return str(run["verdict"].replace("_", " "))


def markdown(summary: Summary) -> str:
    """Return the table as Markdown, with the setup and the command line below it."""
    command = "make load"
    command_line_options = summary["load"]["given"]
    if command_line_options:
        command += f' ARGS="{command_line_options}"'
    return make_sheet(summary).markdown(f"{_describe_setup(summary)}\n\n`{command}`")


def _format_figure(name: str, figure: float | None) -> str:
    """Format a figure. None becomes `unknown` for a processor time, and otherwise a dash."""
    if figure is None:
        return "unknown" if name.startswith("CPU") else "-"
    _, format_spec = FIGURES[name]
    return format(figure, format_spec)


def make_title(summary: Summary) -> str:
    """Return the table's title: the products, the load model, the hold and the nodes."""
    load = summary["load"]
    clients = f"{load['clients']} clients (closed model)"
    if load["arrivals_per_second"]:
        clients = f"{load['arrivals_per_second']:g} arrivals a second (open model)"
    products = "One hot product"
    if load["products"] > 1:
        products = f"{load['products']} products, Zipf skew {load['skew']:g}"
    phrases = [products, clients]
    if load["hold_ms"]:
        phrases.append(f"hold {load['hold_ms']} ms")
    phrases.append(format_count(load["nodes"], "node"))
    return ", ".join(phrases)


def _describe_setup(summary: Summary) -> str:
    """Return sentences on the setup of the load, and on the totals of the exact sales.

    The last sentence says in how many exact sales the orders and the remaining stock add up to the
    units that were put up for sale. The text calls these units "stock asked".
    """
    load = summary["load"]
    rounds = summary["rounds"]
    locust_processes = "1 process"
    if load["locust_workers"] > 1:
        locust_processes = f"{load['locust_workers']} processes"
    runs: Sequence[Any] = summary["runs"]
    sales: list[dict[str, Any]] = []
    for run in runs:
        if run["verdict"] == "exact":
            sales += run["products"]
    balanced_sales = [sale for sale in sales if sale["asked"] == sale["orders"] + sale["left"]]
    orders = sum(sale["orders"] for sale in sales)
    repetitions = "One round"
    if rounds > 1:
        repetitions = f"Medians of {rounds} interleaved rounds"
    return (
        f"{repetitions} of "
        f"{load['seconds']:g} s, {WARM_UP_SECONDS:g} s of warm-up before each; "
        f"{load['stock']:,} units of each product, hold {load['hold_ms']} ms; "
        f"{format_count(load['nodes'], 'node')} of {load['workers']} workers and "
        f"{summary['threads']} threads, Locust in {locust_processes}; "
        f"{tables.describe_machine_and_date(summary)}. "
        f"{orders:,} orders in {format_count(len(sales), 'exact sale')}; stock asked = "
        f"orders + left in {len(balanced_sales)} of {len(sales)}."
    )
