"""The table of a load run, for the terminal and for docs/scale.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from loadtest.judge.run import Summary
from loadtest.load.plan import Chosen
from loadtest.report import tables as report

NAME = "load.md"
LEGEND = """
p50, p99 ms: time to answer, of the buyers who arrived while it was measured
p99 / p50: how unevenly they wait
Jain: 1 if every client bought as many units, 1/n if one of n bought all
CPU ms: processor time a sold unit, of the nodes, PostgreSQL, Valkey and Locust
errors: answers that were neither sold nor sold_out, in the round with most of them"""
#: The parts whose processor time is shown.
PARTS = ("nodes", "PostgreSQL", "Valkey", "Locust")
#: The text of a column, from a strategy's medians.
Figure = Callable[[Mapping[str, Any]], str]


def _text(value: float | None, form: str, unknown: str = "-") -> str:
    return unknown if value is None else f"{value:{form}}"


def _cpu(part: str) -> Figure:
    """0 only where 0 was measured."""
    return lambda found: _text(found["cpu_ms_per_sale"].get(part), ".2f", "unknown")


FIGURES: dict[str, Figure] = {
    "sold/s": lambda found: _text(found["sold_per_s"], ".0f"),
    "p50 ms": lambda found: _text(found["p50"], ".0f"),
    "p99 ms": lambda found: _text(found["p99"], ".0f"),
    "p99 / p50": lambda found: _text(found["p99_to_p50"], ".1f"),
    "Jain": lambda found: _text(found["jain"], ".2f"),
    "errors": lambda found: _text(found["errors"], ".0f"),
    **{f"CPU ms {part}": _cpu(part) for part in PARTS},
}
LAG = "settled after ms"


def table(summary: Summary) -> Table:
    """One line per strategy: medians over the rounds, and the worst verdict."""
    shown = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for name in ("lock", "verdict"):
        shown.add_column(name, no_wrap=True)
    for name in columns(summary):
        shown.add_column(name.replace("CPU ms ", "CPU ms\n"), justify="right")
    for run in worst(summary):
        shown.add_row(run["lock"], verdict_cell(run), *figures(summary, run))
    return shown


def markdown(summary: Summary) -> str:
    """The same as Markdown, with where and when it was measured, and the command."""
    names = columns(summary)
    lines = [f"| lock | verdict | {' | '.join(names)} |", f"|---|---|{'--:|' * len(names)}"]
    for run in worst(summary):
        cells = [f"**{verdict_text(run)}**", *figures(summary, run)]
        lines.append(f"| `{run['lock']}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", where(summary)]) + "\n"


def columns(summary: Summary) -> list[str]:
    """Without what no run has: Jain's index in the open model, the lag of those that settle."""
    found = summary["medians"].values()
    names = [name for name in FIGURES if name != "Jain" or any(one["jain"] for one in found)]
    has_lag = any(run.get("settlement_lag_ms") is not None for run in _runs(summary))
    return [*names, *([LAG] if has_lag else [])]


def figures(summary: Summary, run: Mapping[str, Any]) -> list[str]:
    """The texts of the columns for a strategy; empty for one that was not run."""
    names, found = columns(summary), summary["medians"].get(run["lock"])
    if found is None:
        return [""] * len(names)
    lag = _text(run.get("settlement_lag_ms"), ".0f")
    return [lag if name == LAG else FIGURES[name](found) for name in names]


def worst(summary: Summary) -> list[Any]:
    """One run per strategy: the first that is not as expected, else its first."""
    runs = _runs(summary)
    found = []
    for lock in dict.fromkeys(run["lock"] for run in runs):
        same = [run for run in runs if run["lock"] == lock]
        found.append(next((run for run in same if not run["as_expected"]), same[0]))
    return found


def verdict_cell(run: Any) -> str:
    """The verdict as elsewhere, and what a sale shows that lost decrements before it ran out."""
    if verdict_text(run) != "LOST UPDATES":
        return report.verdict_cell(run)
    surprise = "" if run["as_expected"] else f" (expected {run['expected']})"
    return f"[bold red]✗ LOST UPDATES[/]{surprise}"


def verdict_text(run: Mapping[str, Any]) -> str:
    """The verdict in capitals, without colour."""
    has_lost = run["verdict"] == "unknown" and (run.get("lost_updates") or 0) > 0
    return "LOST UPDATES" if has_lost else str(run["verdict"]).upper().replace("_", " ")


def notes(runs: Sequence[Any]) -> list[str]:
    """A line for each run that says why it is no evidence, or what to know of it."""
    return [f"{run['lock']}, round {run['round']}: {run['why']}" for run in runs if run.get("why")]


def sums(summary: Summary) -> str:
    """Of every run together: whether each product's stock is its orders and what is left."""
    exact = [run for run in _runs(summary) if run["verdict"] == "exact"]
    sales = [one for run in exact for one in run["products"]]
    even = sum(one["asked"] == one["orders"] + one["left"] for one in sales)
    orders = sum(one["orders"] for one in sales)
    return (
        f"{orders:,} orders in {len(sales)} exact sale{'s' * (len(sales) != 1)}; stock asked = "
        f"orders + left in {even} of {len(sales)}."
    )


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


def where(summary: Summary) -> str:
    """What was run, on what, when, and by which command."""
    machine, asked, rounds = summary["machine"], summary["load"], summary["rounds"]
    processes = max(1, asked["locust_workers"])
    return (
        f"{'One round' if rounds == 1 else f'Medians of {rounds} interleaved rounds'} of "
        f"{asked['seconds']:g} s, {asked['warm_up']:g} s of warm-up before each; "
        f"{asked['stock']:,} units of each product, hold {asked['hold_ms']} ms; "
        f"{_nodes(asked['nodes'])} of {asked['workers']} workers and {summary['threads']} "
        f"threads, Locust in {processes} process{'es' * (processes > 1)}; {machine['cpus']} CPUs "
        f"for all of it, Python {machine['python']}, PostgreSQL {machine['postgres']}, "
        f"{machine['redis']}; {summary['started'][:10]}. {sums(summary)}\n\n`{command(summary)}`"
    )


def command(summary: Summary) -> str:
    """The command that measures the same again."""
    asked = summary["load"]
    words = [f"--lock {','.join(asked['locks'])}"]
    for name, usual in asdict(Chosen()).items():
        if name not in {"locks", "skew"} and asked[name] != usual:
            value = asked[name] if isinstance(asked[name], str) else f"{asked[name]:g}"
            words.append(f"--{name.replace('_', '-')} {value}")
    if asked["products"] > 1:
        words.append(f"--skew {asked['skew']:g}")
    return f'make load ARGS="{" ".join(words)}"'


def _runs(summary: Summary) -> Sequence[Any]:
    return summary["runs"]
