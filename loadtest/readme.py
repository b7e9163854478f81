"""python -m loadtest.readme: put the latest results into README.md, docs/faults.md and others."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest import report
from loadtest.demo import Setting
from loadtest.faults import FAULTS
from loadtest.http_servers import SERVERS
from loadtest.results import RESULTS

ROOT = RESULTS.parent
Summary = Mapping[str, Any]


def begin(table: str) -> str:
    return f"<!-- {table}: begin (make readme writes this) -->"


def end(table: str) -> str:
    return f"<!-- {table}: end -->"


def with_table(text: str, name: str, table: str) -> str:
    """`text` with what stands between the two markers replaced. Raises ValueError without them."""
    before, first, rest = text.partition(begin(name))
    _, last, after = rest.partition(end(name))
    if not (first and last):
        raise ValueError(f"README.md lacks the lines {begin(name)!r} and {end(name)!r}")
    return f"{before}{first}\n{table}{last}{after}"


def newest(results: Path, file: str, good: Callable[[Path], bool]) -> Path | None:
    """The newest file of that name that is good; None where there is none yet."""
    return next(filter(good, sorted(results.glob(f"[0-9]*/{file}"), reverse=True)), None)


def is_whole(faults: Path) -> bool:
    """Whether this faults.json is of a run of every fault for every strategy."""
    runs = json.loads(faults.read_text())["runs"]
    return {run["fault"] for run in runs} == set(FAULTS) and len({r["lock"] for r in runs}) > 20


def is_matrix(summary: Path) -> bool:
    """Whether this summary.json is of a run of every strategy."""
    return summary.with_name("matrix.md").exists() and len(_read(summary)["runs"]) > 20


def is_contrast(demo: Path) -> bool:
    """Whether this demo.md is of the demo as it is without arguments."""
    runs = _read(demo.with_name("summary.json"))["runs"]
    asked = {(run["buyers"], run["initial_stock"], run["hold_ms"]) for run in runs}
    usual = Setting()
    return asked == {(usual.buyers, usual.stock, usual.hold_ms)} and [
        run["lock"] for run in runs
    ] == list(usual.locks)


def has_every_server(table: Path) -> bool:
    """Whether this http-servers.md is of a run of every server."""
    return len(json.loads(table.with_suffix(".json").read_text())) == len(SERVERS)


def main(results: Path = RESULTS, root: Path = ROOT) -> int:
    readme = root / "README.md"
    text = readme.read_text()
    demo = newest(results, "demo.md", is_contrast)
    matrix = newest(results, "summary.json", is_matrix)
    faults = newest(results, "faults.json", is_whole)
    if demo is None:
        print("there is no table yet that make demo wrote; the old one stays")
    else:
        text = with_table(text, "demo", demo.read_text())
    if matrix is None or faults is None:
        print("the table of locks needs make matrix and make faults, both whole; the old one stays")
    else:
        text = with_table(text, "locks", locks_table(_read(matrix), _read(faults)))
        (root / "docs" / "faults.md").write_text(faults.with_name("faults.md").read_text())
    readme.write_text(text)
    if servers := newest(results, "http-servers.md", has_every_server):
        page = root / "docs" / "http-servers.md"
        page.write_text(with_table(page.read_text(), "http-servers", servers.read_text()))
    return 0


def locks_table(matrix: Summary, faults: Summary) -> str:
    """A line per strategy: what came of the rush, and under which faults it broke."""
    runs = report.typical(matrix["runs"])
    lines = ["| lock | in the rush | s | x row-lock | broken by |", "|---|---|--:|--:|---|"]
    for run in runs:
        cells = [cell for cell in faults["runs"] if cell["lock"] == run["lock"]]
        broken = "any rush" if run["verdict"] == "oversold" else _broken(cells)
        figures = report.figures(run, runs, ("seconds", "x row-lock"))
        row = [report.named(run, code="`"), f"**{run['verdict'].upper()}**", *figures, broken]
        lines.append(f"| {' | '.join(row)} |")
    count = f"{len(faults['runs'])} cells of `make faults`, {faults['started'][:10]}."
    return "\n".join([*lines, "", f"{report.where(matrix)} {count}"]) + "\n"


def _broken(cells: Sequence[Mapping[str, Any]]) -> str:
    """`slow, pause; deadlock: crash`. Oversold is not named: it is the usual."""
    by_verdict: dict[str, list[str]] = {}
    for cell in cells:
        if cell["verdict"] != "exact":
            by_verdict.setdefault(cell["verdict"], []).append(cell["fault"])
    oversold = ", ".join(by_verdict.pop("oversold", []))
    others = [f"{verdict}: {', '.join(names)}" for verdict, names in by_verdict.items()]
    if not cells:
        return ""  # no fault concerns it
    return "; ".join(filter(None, (oversold, *others))) or "nothing here"


def _read(summary: Path) -> Summary:
    return dict(json.loads(summary.read_text()))


if __name__ == "__main__":
    sys.exit(main())
