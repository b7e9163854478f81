"""make readme: put the latest results into README.md and the pages of docs/ that have tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from loadtest.commands.rushes import Setting
from loadtest.expected import BEYOND_LOCKS
from loadtest.faults import FAULTS
from loadtest.judge.run import Grown, Run, Summary
from loadtest.report import load_table
from loadtest.report import tables as report
from loadtest.stack.results import RESULTS
from loadtest.stack.stack import SERVERS as NODE_SERVERS
from tools import growth

ROOT = RESULTS.parent
#: A run of all strategies has more than this.
SOME = 20
#: What the README says of the locks of the demo.
GUARDS = {
    "none": "nothing",
    "token": "a Redis lock as most articles have it",
    "redis": "the lock of this project",
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
#: A load run has at least so many rounds before it is shown.
ROUNDS = 3


#: In place of the faults that broke a strategy, where there are none.
NOTHING = "nothing here"


def begin(table: str) -> str:
    return f"<!-- {table}: begin (make readme writes this) -->"


def end(table: str) -> str:
    return f"<!-- {table}: end -->"


def with_table(text: str, name: str, table: str) -> str:
    """`text` with `table` between the markers of that name. Raises ValueError without them."""
    before, first, rest = text.partition(begin(name))
    _, last, after = rest.partition(end(name))
    if not (first and last):
        raise ValueError(f"README.md lacks the lines {begin(name)!r} and {end(name)!r}")
    return f"{before}{first}\n{table}{last}{after}"


def newest(results: Path, table: str, whole: Callable[[Sequence[Run]], bool]) -> Path | None:
    """The newest file `table` beside which summary.json is of a whole run; None without one."""
    found = sorted(results.glob(f"[0-9]*/{table}"), reverse=True)
    return next((path for path in found if whole(_summary(path)["runs"])), None)


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
    verdicts, and nobody was refused."""
    found = _grown(runs)
    usual = {run["buyers"] for run in runs} >= set(growth.SIZES) and not growth.repeated(runs)
    return usual and len(found) == len(runs) and {one["server"] for one in found} == {server}


def _grown(runs: Sequence[Run]) -> list[Grown]:
    """What those took that came to their verdict; a table shows no others."""
    return [run["grown"] for run in runs if "grown" in run and run["as_expected"]]


#: The tables of docs/scale.md that `growth` writes.
GROWN: dict[str, Callable[[Sequence[Run]], bool]] = {
    "growth": is_growth,
    "growth-asgi": partial(is_growth, server="asgi"),
}


def load_tables(results: Path) -> str:
    """The tables of the newest whole runs of make load, one of each kind under a heading; empty
    without any. Kinds: one hot product or many, with a hold or without, closed or open, and how
    many nodes."""
    found: dict[tuple[bool, bool, bool, int], tuple[Summary, str]] = {}
    for path in sorted(results.glob(f"[0-9]*/{load_table.NAME}")):
        summary = _summary(path)
        if is_whole_load(summary):
            asked = summary["load"]
            is_open, has_hold = asked["arrivals_per_second"] > 0, asked["hold_ms"] > 0
            kind = (asked["products"] > 1, has_hold, is_open, asked["nodes"])
            found[kind] = (summary, path.read_text())
    headed = [f"### {load_table.title(found[k][0])}\n\n{found[k][1]}" for k in sorted(found)]
    return "\n".join(headed)


def is_whole_load(summary: Summary) -> bool:
    """Whether a load run is worth a page: three rounds, and each measurement succeeded."""
    return summary["rounds"] >= ROUNDS and all(run["as_expected"] for run in summary["runs"])


def write_load_tables(results: Path, page: Path) -> None:
    """Put the tables of make load between the markers of a page, if there are any."""
    if tables := load_tables(results):
        page.write_text(with_table(page.read_text(), "load", tables))
    else:
        print("docs/scale.md needs make load with --rounds 3; the old tables stay")


def main(results: Path = RESULTS, root: Path = ROOT) -> int:
    readme = root / "README.md"
    text = readme.read_text()
    demo = newest(results, "demo.md", is_contrast)
    matrix = newest(results, "matrix.md", is_every_strategy)
    faults = newest(results, "faults.md", is_every_fault)
    if demo is None:
        print("there is no table yet that make demo wrote; the old one stays")
    else:
        text = with_table(text, "demo", contrast_table(_summary(demo)))
    if matrix is None or faults is None:
        print("the table of locks needs make matrix and make faults, both whole; the old one stays")
    else:
        text = with_table(text, "faults", faults_table(_summary(matrix), _summary(faults)))
        every = root / "docs" / "strategies.md"
        locks = locks_table(_summary(matrix), _summary(faults))
        every.write_text(with_table(every.read_text(), "locks", locks))
        (root / "docs" / "faults.md").write_text(faults.read_text())
    readme.write_text(text)
    write_load_tables(results, root / "docs" / "scale.md")
    for name, whole in GROWN.items():
        if grown := newest(results, "growth.md", whole):
            page = root / "docs" / "scale.md"
            page.write_text(with_table(page.read_text(), name, growth.markdown(_summary(grown))))
    return 0


def contrast_table(demo: Summary) -> str:
    """The three lines of a demo: what guards the stock, and what came of it."""
    lines = [
        "| what guards the stock | verdict | orders | stock left | lost updates |",
        "|---|---|--:|--:|--:|",
    ]
    for run in demo["runs"]:
        named = f"`{run['lock']}`: {GUARDS[run['lock']]}"
        figures = report.figures(run, demo["runs"], ("orders", "stock left", "lost updates"))
        lines.append(f"| {' | '.join([named, _bold(run['verdict']), *figures])} |")
    machine = demo["machine"]
    where = (
        f"{demo['nodes']} servers, no artificial delay; {machine['cpus']} CPUs, Python "
        f"{machine['python']}, PostgreSQL {machine['postgres']}, {machine['redis']}; "
        f"{demo['started'][:10]}."
    )
    return "\n".join([*lines, "", where]) + "\n"


def _bold(verdict: str) -> str:
    return f"**{verdict.upper()}**"


def faults_table(matrix: Summary, faults: Summary) -> str:
    """The strategies of FEW: the verdict in the rush, and what broke each; below, how many of all
    stayed exact."""
    rushes = {run["lock"]: run for run in matrix["runs"] if run["fault"] == "rush"}
    broken = {
        lock: _broken([cell for cell in faults["runs"] if cell["lock"] == lock])
        if run["verdict"] == "exact"
        else "any rush"
        for lock, run in rushes.items()
    }
    lines = ["| what guards the stock | in the rush | broken by |", "|---|---|---|"]
    for lock, said in ((lock, said) for lock, said in FEW.items() if lock in rushes):
        lines.append(f"| `{lock}`: {said} | {_bold(rushes[lock]['verdict'])} | {broken[lock]} |")
    exact = [f"`{lock}`" for lock, by in broken.items() if by == NOTHING]
    apart = " and ".join(f"`{name}`" for name in sorted(BEYOND_LOCKS))
    sum_up = (
        f"{len(exact)} of {len(broken)} stayed exact throughout: {', '.join(exact)}. "
        f"{len(faults['runs'])} cells, {faults['started'][:10]}; without {apart}, which no lock "
        "survives by itself."
    )
    return "\n".join([*lines, "", sum_up]) + "\n"


def locks_table(matrix: Summary, faults: Summary) -> str:
    """A line per strategy: its verdict in the rush, and the faults under which it broke."""
    runs = report.typical(matrix["runs"])
    lines = ["| lock | in the rush | s | time / row-lock | broken by |", "|---|---|--:|--:|---|"]
    for run in runs:
        cells = [cell for cell in faults["runs"] if cell["lock"] == run["lock"]]
        broken = "any rush" if run["verdict"] == "oversold" else _broken(cells)
        figures = report.figures(run, runs, ("seconds", "time / row-lock"))
        row = [report.named(run, code="`"), f"**{run['verdict'].upper()}**", *figures, broken]
        lines.append(f"| {' | '.join(row)} |")
    apart = " and ".join(f"`{name}`" for name in sorted(BEYOND_LOCKS))
    count = (
        f"{len(faults['runs'])} cells of `make faults`, {faults['started'][:10]}; {apart}, which "
        "no lock survives by itself, are in docs/verdicts.md."
    )
    return "\n".join([*lines, "", f"{report.where(matrix)} {count}"]) + "\n"


def _broken(cells: Sequence[Run]) -> str:
    """For instance `slow, pause; deadlock: crash`. Without a name the verdict is oversold."""
    by_verdict: dict[str, list[str]] = {}
    for cell in cells:
        if cell["verdict"] != "exact" and cell["fault"] not in BEYOND_LOCKS:
            by_verdict.setdefault(cell["verdict"], []).append(cell["fault"])
    oversold = ", ".join(by_verdict.pop("oversold", []))
    others = [f"{verdict}: {', '.join(names)}" for verdict, names in by_verdict.items()]
    if not cells:
        return ""  # no fault concerns it
    return "; ".join(filter(None, (oversold, *others))) or NOTHING


def _summary(table: Path) -> Summary:
    """The summary.json beside a table."""
    found: Summary = json.loads(table.with_name("summary.json").read_text())
    return found


if __name__ == "__main__":
    sys.exit(main())
