"""make readme: put the latest results into README.md and the pages of docs/ that have tables."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from loadtest.commands.output import RESULTS
from loadtest.commands.rushes import Setting
from loadtest.expected import BEYOND_LOCKS
from loadtest.faults import FAULTS, fault_report
from loadtest.judge.run import Cell, Run, Summary
from loadtest.report import load_table
from loadtest.report import tables as report
from loadtest.stack.stack import SERVERS as NODE_SERVERS
from tools import growth

ROOT = RESULTS.parent
#: A run of all strategies has more than this.
SOME = 20
#: What the README says of the locks of the demo.
GUARDS = {
    "none": "nothing",
    "token": "a Redis lock as most articles have it",
    "redis": "RedisLock, of this project",
}
#: The strategies of the README's short table of faults, and what they are.
FEW = {
    "process": "a lock in one process",
    "setnx": "SETNX, DEL",
    "token": "SET NX PX, a token, compare and delete",
    "token-watchdog": "the same, renewed by a thread",
    "reentrant": "Redisson's lock",
    "redlock": "a majority of five servers",
    "zookeeper": "an ephemeral node",
    "counter": "units handed out by Redis",
    "redis": "a renewed lock, its fence claimed at the read",
    "row-lock": "SELECT ... FOR UPDATE",
    "conditional": "UPDATE ... WHERE amount > 0",
}
#: A load run needs at least this many rounds to be shown.
ROUNDS = 3
#: The faults that the tables leave out.
APART = " and ".join(f"`{name}`" for name in sorted(BEYOND_LOCKS))
#: In place of the faults that broke a strategy, where there are none.
NOTHING = "nothing here"


def begin(table: str) -> str:
    return f"<!-- {table}: begin (make readme writes this) -->"


def end(table: str) -> str:
    return f"<!-- {table}: end -->"


def put(page: Path, name: str, table: str) -> None:
    """Put `table` between the markers of that name in a page. Raises ValueError without them."""
    before, first, rest = page.read_text().partition(begin(name))
    _, last, after = rest.partition(end(name))
    if not (first and last):
        raise ValueError(f"{page.name} lacks the lines {begin(name)!r} and {end(name)!r}")
    page.write_text(f"{before}{first}\n{table}{last}{after}")


def newest(results: Path, table: str, whole: Callable[[Sequence[Run]], bool]) -> Summary | None:
    """The summary of the newest whole run that wrote the file `table`; None without one."""
    found = map(_summary, sorted(results.glob(f"[0-9]*/{table}"), reverse=True))
    return next((summary for summary in found if whole(summary["runs"])), None)


def is_every_fault(runs: Sequence[Run]) -> bool:
    """Whether these are the runs of every fault for every strategy, and all of them show
    something."""
    if any(run.get("verdict") == "unknown" for run in runs):
        return False
    return {run["fault"] for run in runs} == set(FAULTS) and len({r["lock"] for r in runs}) > SOME


def is_every_strategy(runs: Sequence[Run]) -> bool:
    """Whether these are the runs of every strategy, of the usual size."""
    usual = {run["buyers"] for run in runs if "buyers" in run} == {Setting().buyers}
    return usual and len({run["lock"] for run in runs}) > SOME


def is_contrast(runs: Sequence[Run]) -> bool:
    """Whether these are the runs of a demo without arguments."""
    usual = Setting()
    asked = {(run["buyers"], run["initial_stock"], run["hold_ms"]) for run in runs}
    same = asked == {(usual.buyers, usual.stock, usual.hold_ms)}
    return same and [run["lock"] for run in runs] == list(usual.locks)


def is_growth(runs: Sequence[Run], *, server: str = NODE_SERVERS[0]) -> bool:
    """Whether these are rushes of the usual sizes on such nodes, one of each, with the expected
    verdicts."""
    grown = [run["grown"]["server"] for run in runs if "grown" in run and run["as_expected"]]
    usual = {run["buyers"] for run in runs} >= set(growth.SIZES) and not growth.repeated(runs)
    return usual and grown == [server] * len(runs)


def load_tables(results: Path) -> str:
    """The tables of the newest whole runs of make load, one of each kind under a heading; empty
    without any. Whole are three rounds of which each measurement succeeded. Kinds: one hot product
    or many, with a hold or without, closed or open, and how many nodes."""
    found: dict[tuple[bool, bool, bool, int], str] = {}
    for path in sorted(results.glob(f"[0-9]*/{load_table.NAME}")):
        summary = _summary(path)
        if summary["rounds"] >= ROUNDS and all(run["as_expected"] for run in summary["runs"]):
            asked = summary["load"]
            is_open, has_hold = asked["arrivals_per_second"] > 0, asked["hold_ms"] > 0
            kind = (asked["products"] > 1, has_hold, is_open, asked["nodes"])
            found[kind] = f"### {load_table.title(summary)}\n\n{path.read_text()}"
    return "\n".join(found[kind] for kind in sorted(found))


def main(results: Path = RESULTS, root: Path = ROOT) -> None:
    readme, strategies, scale = (
        root / name for name in ("README.md", "docs/strategies.md", "docs/scale.md")
    )
    demo = newest(results, "demo.md", is_contrast)
    matrix = newest(results, "matrix.md", is_every_strategy)
    faults = newest(results, "faults.md", is_every_fault)
    if demo is None:
        print("there is no table yet that make demo wrote; the old one stays")
    else:
        put(readme, "demo", contrast_table(demo))
    if matrix is None or faults is None:
        print("the table of locks needs make matrix and make faults, both whole; the old one stays")
    else:
        put(readme, "faults", faults_table(matrix, faults))
        put(strategies, "locks", locks_table(matrix, faults))
        cells = cast(Sequence[Cell], faults["runs"])
        (root / "docs" / "faults.md").write_text(fault_report.markdown(faults, cells))
    if tables := load_tables(results):
        put(scale, "load", tables)
    else:
        print("docs/scale.md needs make load with --rounds 3; the old tables stay")
    for name, whole in (("growth", is_growth), ("growth-asgi", partial(is_growth, server="asgi"))):
        if grown := newest(results, "growth.md", whole):
            put(scale, name, growth.markdown(grown))


def contrast_table(demo: Summary) -> str:
    """The three lines of a demo: what guards the stock, and the verdict."""
    names = ("orders", "stock left", "lost updates")
    rows = [
        [
            f"`{run['lock']}`: {GUARDS[run['lock']]}",
            report.bold(run["verdict"]),
            *report.figures(run, demo["runs"], names),
        ]
        for run in demo["runs"]
    ]
    stock = demo["runs"][0]["initial_stock"]
    where = (
        f"{demo['nodes']} nodes of the shop, no artificial delay; {report.machine_and_date(demo)}. "
        f"Lost updates: orders, less the units that left the stock of {stock}."
    )
    return report.markdown_table(["what guards the stock", "verdict", *names], rows, where)


def faults_table(matrix: Summary, faults: Summary) -> str:
    """The strategies of FEW: the verdict in the rush, and what broke each; below, how many of all
    stayed exact."""
    rushes = {run["lock"]: run["verdict"] for run in matrix["runs"] if run["fault"] == "rush"}
    broken = {lock: _broken(lock, verdict, faults) for lock, verdict in rushes.items()}
    rows = [
        [f"`{lock}`: {said}", report.bold(rushes[lock]), broken[lock]]
        for lock, said in FEW.items()
        if lock in rushes
    ]
    exact = [f"`{lock}`" for lock, by in broken.items() if by == NOTHING]
    below = (
        f"{len(exact)} of {len(broken)} stayed exact throughout: {', '.join(exact)}. "
        f"{len(faults['runs'])} cells, {faults['started'][:10]}; without {APART}, which no lock "
        "survives by itself."
    )
    headings = ["what guards the stock", "in the rush", "broken by"]
    return report.markdown_table(headings, rows, below, left=3)


def locks_table(matrix: Summary, faults: Summary) -> str:
    """A line per strategy: its verdict in the rush, and the faults under which it broke."""
    runs = matrix["runs"]
    lines = ["| lock | in the rush | s | time / row-lock | broken by |", "|---|---|--:|--:|---|"]
    for run in runs:
        figures = report.figures(run, runs, ("seconds", "time / row-lock"))
        broken = _broken(run["lock"], run["verdict"], faults)
        row = [report.named(run, code="`"), report.bold(run["verdict"]), *figures, broken]
        lines.append(f"| {' | '.join(row)} |")
    below = (
        f"{report.where(matrix)} {len(faults['runs'])} cells of `make faults`, "
        f"{faults['started'][:10]}; {APART}, which no lock survives by itself, are in "
        "docs/verdicts.md."
    )
    return "\n".join([*lines, "", below]) + "\n"


def _broken(lock: str, verdict: str, faults: Summary) -> str:
    """What broke a strategy of this verdict in the rush, for instance `slow, pause; deadlock:
    crash`. Without a name the verdict is oversold."""
    cells = [cell for cell in faults["runs"] if cell["lock"] == lock]
    if verdict == "oversold":
        return "any rush"
    if not cells:
        return ""  # no fault concerns it
    by_verdict: dict[str, list[str]] = {"oversold": []}
    for cell in cells:
        if cell["verdict"] != "exact" and cell["fault"] not in BEYOND_LOCKS:
            by_verdict.setdefault(cell["verdict"], []).append(cell["fault"])
    oversold = ", ".join(by_verdict.pop("oversold"))
    others = [f"{verdict}: {', '.join(names)}" for verdict, names in by_verdict.items()]
    return "; ".join(filter(None, (oversold, *others))) or NOTHING


def _summary(table: Path) -> Summary:
    """The summary.json of the run that wrote a table."""
    found: Summary = json.loads(table.with_name("summary.json").read_text())
    return found


if __name__ == "__main__":
    main()
