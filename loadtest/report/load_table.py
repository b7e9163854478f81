"""The table of a load run, for the terminal and for docs/scale.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtest.judge.run import Summary
from loadtest.load.chosen import Chosen
from loadtest.load.load_run import LoadRun
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


def table(summary: Summary, console: Console) -> Table:
    """One line per strategy: medians over the rounds, and the worst verdict. As many columns as the
    console has room for."""
    unbounded = console.options.update(width=10_000)
    names = columns(summary)
    for left in range(len(names), -1, -1):
        shown = _table(summary, names[:left])
        if left < len(names):
            shown.caption = f"{console.width} columns: {', '.join(names[left:])} left out"
        if console.measure(_table(summary, names[:left]), options=unbounded).maximum <= (
            console.width
        ):
            break
    return shown


def _table(summary: Summary, names: Sequence[str]) -> Table:
    shown = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for name in ("lock", "verdict"):
        shown.add_column(name, no_wrap=True)
    for name in names:
        shown.add_column(name.replace("CPU ms ", "CPU ms\n"), justify="right", no_wrap=True)
    for run in worst(summary):
        shown.add_row(run["lock"], verdict_cell(run), *figures(summary, run, names))
    return shown


def markdown(summary: Summary) -> str:
    """The same as Markdown, with where and when it was measured, and the command."""
    names = columns(summary)
    lines = [f"| lock | verdict | {' | '.join(names)} |", f"|---|---|{'--:|' * len(names)}"]
    for run in worst(summary):
        cells = [f"**{verdict_text(run)}**", *figures(summary, run, names)]
        lines.append(f"| `{run['lock']}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", where(summary)]) + "\n"


def columns(summary: Summary) -> list[str]:
    """Without what no run has: Jain's index in the open model, the lag of those that settle."""
    found = summary["medians"].values()
    names = [name for name in FIGURES if name != "Jain" or any(one["jain"] for one in found)]
    has_lag = any(run.get("settlement_lag_ms") is not None for run in _runs(summary))
    return [*names, *([LAG] if has_lag else [])]


def figures(summary: Summary, run: LoadRun, names: Sequence[str]) -> list[str]:
    """The texts of the columns for a strategy; empty for one that was not run."""
    found = summary["medians"].get(run["lock"])
    if found is None:
        return [""] * len(names)
    return [_lag(run) if name == LAG else FIGURES[name](found) for name in names]


def _lag(run: LoadRun) -> str:
    lag = run.get("settlement_lag_ms")
    return _text(lag.get("p99", lag.get("max")) if isinstance(lag, dict) else lag, ".0f")


def worst(summary: Summary) -> list[LoadRun]:
    """One run per strategy: the first that is not as expected, else its first."""
    runs = _runs(summary)
    found = []
    for lock in dict.fromkeys(run["lock"] for run in runs):
        same = [run for run in runs if run["lock"] == lock]
        found.append(next((run for run in same if not run["as_expected"]), same[0]))
    return found


def verdict_cell(run: LoadRun) -> str:
    """The verdict as elsewhere, and what a sale shows that lost decrements before it ran out."""
    if not _lost(run):
        return report.verdict_cell(run)
    surprise = "" if run["as_expected"] else f" (expected {run['expected']})"
    return f"[bold red]✗ {verdict_text(run)}[/]{surprise}"


def verdict_text(run: LoadRun) -> str:
    """The verdict in capitals, without colour."""
    return "LOST UPDATES" if _lost(run) else run["verdict"].upper().replace("_", " ")


def _lost(run: LoadRun) -> bool:
    return run["verdict"] == "unknown" and (run.get("lost_updates") or 0) > 0


def notes(runs: Sequence[LoadRun]) -> list[str]:
    """A line for each run that says why it is no evidence, or what to know of it."""
    return [f"{run['lock']}, round {run['round']}: {run['why']}" for run in runs if run.get("why")]


def sums(summary: Summary) -> str:
    """Of every run together: whether each product's stock is its orders and what is left."""
    runs = [run for run in _runs(summary) if run["verdict"] == "exact"]
    sales = [one for run in runs for one in run["products"]]
    off = sum(one["asked"] != one["orders"] + one["left"] for one in sales)
    orders = sum(one["orders"] for one in sales)
    if len(sales) == 1:
        same = "is" if not off else "is not"
        return f"{orders:,} orders in 1 sale that is exact; stock asked {same} orders + left."
    return (
        f"{orders:,} orders in {len(sales)} sales that are exact; stock asked = orders + left in "
        f"{len(sales) - off} of them."
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


def _rounds(count: int) -> str:
    return "One round" if count == 1 else f"Medians of {count} interleaved rounds"


def where(summary: Summary) -> str:
    """What was run, on what, when, and by which command."""
    machine, asked = summary["machine"], summary["load"]
    return (
        f"{_rounds(summary['rounds'])} of {asked['seconds']:g} s, "
        f"{asked['warm_up']:g} s of warm-up before each; {asked['stock']:,} units of each product, "
        f"hold {asked['hold_ms']} ms; "
        f"{_nodes(asked['nodes'])} of {asked['workers']} workers and {summary['threads']} "
        f"threads, Locust in {max(1, asked['locust_workers'])} "
        f"{'process' if asked['locust_workers'] < 2 else 'processes'}; {machine['cpus']} CPUs for "
        f"all of it, Python {machine['python']}, PostgreSQL {machine['postgres']}, "
        f"{machine['redis']}; {others(summary)}{summary['started'][:10]}. {sums(summary)}\n\n"
        f"`{command(summary)}`"
    )


def others(summary: Summary) -> str:
    """How much of the machine other programs took meanwhile, if that is known."""
    shares = [run.get("others_busy") for run in _runs(summary)]
    known = [share for share in shares if share is not None]
    if not known:
        return ""
    return f"other programs took {min(known):.0%} to {max(known):.0%} of the processors; "


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


def _runs(summary: Summary) -> Sequence[LoadRun]:
    return summary["runs"]  # type: ignore[return-value]
