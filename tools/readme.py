"""make readme: writes the newest results of the load test into the tables of README.md and docs/.

The results are those of `make demo`, `matrix`, `faults`, `load` and `growth`. A rush is a run in
which all buyers arrive at once. A cell is the run of one strategy under one fault.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from loadtest.commands.output import RESULTS
from loadtest.commands.rushes import RushOptions, make_results_filename
from loadtest.expected import FAULTS_BEYOND_LOCKS
from loadtest.faults import FAULTS, fault_report
from loadtest.judge.run import Cell, Run, Summary
from loadtest.report import load_table
from loadtest.report import tables as report
from loadtest.stack.databases import DATABASES, POSTGRES
from tools import growth

ROOT = RESULTS.parent
#: Results with more strategies than this count as results of all strategies, made without the
#: option `--lock`. Strategies that need a server that is not installed may be missing from them.
MAX_SELECTED_STRATEGIES = 20
#: Strategy of the demo -> its description in README.md.
DEMO_STRATEGIES = {
    "none": "nothing",
    "token": "a Redis lock as most articles have it",
    "redis": "RedisLock, of this project",
}
#: Strategy in the table of faults in README.md -> its description. This table is a selection.
README_STRATEGIES = {
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
#: Table of `make growth` in docs/scale.md -> the server that the shop's nodes run in.
GROWTH_TABLES = {"growth": "gthread", "growth-asgi": "asgi"}
#: Results of `make load` with fewer rounds are not shown.
MIN_LOAD_ROUNDS = 3
#: The faults that the tables leave out, such as "`a` and `b`".
OMITTED_FAULTS_TEXT = " and ".join(f"`{name}`" for name in sorted(FAULTS_BEYOND_LOCKS))
#: The text of the last column for a strategy that no fault broke.
NOTHING_BROKE_IT = "nothing here"


def format_begin_marker(table: str) -> str:
    """Return the line of a page above the table with this name."""
    return f"<!-- {table}: begin (make readme writes this) -->"


def format_end_marker(table: str) -> str:
    """Return the line of a page below the table with this name."""
    return f"<!-- {table}: end -->"


def replace_table(page: Path, name: str, table: str) -> None:
    """Replace the text between the two markers of the table `name` in a page.

    Raises ValueError if the page does not have both markers.
    """
    before, begin, rest = page.read_text().partition(format_begin_marker(name))
    _, end, after = rest.partition(format_end_marker(name))
    if not (begin and end):
        raise ValueError(
            f"{page.name} needs the line {format_begin_marker(name)!r} and, below it, "
            f"{format_end_marker(name)!r}"
        )
    page.write_text(f"{before}{begin}\n{table}{end}{after}")


def find_newest(
    results: Path, filename: str, is_complete: Callable[[Sequence[Run]], bool]
) -> Summary | None:
    """Return the summary of the newest complete run of a command; None if there is none.

    results      the folder that has a folder for each run of a command
    filename     the name of the table that the command writes next to summary.json
    is_complete  returns whether the runs in a summary are all that the table needs
    """
    for path in sorted(results.glob(f"[0-9]*/{filename}"), reverse=True):
        summary = _read_summary(path)
        if is_complete(summary["runs"]):
            return summary
    return None


def is_complete_faults_run(runs: Sequence[Run]) -> bool:
    """Return whether these runs of `make faults` are all that its tables need.

    They must have every fault and all strategies, and no verdict may be `unknown`.
    """
    if any(run.get("verdict") == "unknown" for run in runs):
        return False
    return {run["fault"] for run in runs} == set(FAULTS) and _has_all_strategies(runs)


def is_complete_matrix(runs: Sequence[Run]) -> bool:
    """Return whether these runs of `make matrix` are all that its tables need.

    They must have all strategies and the default number of buyers. A run without `buyers` stands
    for a run that was not made, because a part that its strategy needs is missing.
    """
    sizes = {run["buyers"] for run in runs if "buyers" in run}
    return sizes == {RushOptions().buyers} and _has_all_strategies(runs)


def _has_all_strategies(runs: Sequence[Run]) -> bool:
    """Return whether the runs have all strategies: more than MAX_SELECTED_STRATEGIES."""
    return len({run["lock"] for run in runs}) > MAX_SELECTED_STRATEGIES


def is_default_demo(runs: Sequence[Run]) -> bool:
    """Return whether these are the runs of `make demo` without arguments."""
    default = RushOptions()
    sizes = {(run["buyers"], run["initial_stock"], run["hold_ms"]) for run in runs}
    has_default_size = sizes == {(default.buyers, default.stock, default.hold_ms)}
    return has_default_size and [run["lock"] for run in runs] == list(default.locks)


def is_complete_growth(runs: Sequence[Run], *, server: str) -> bool:
    """Return whether these runs of tools.growth are all that its table needs.

    All runs must be on this server and have the expected verdict. No run may have the strategy, the
    number of buyers and the number of nodes of another run. There must be a run with each default
    number of buyers. Runs with further numbers are allowed.
    """
    has_all_sizes = {run["buyers"] for run in runs} >= set(growth.DEFAULT_SIZES)
    is_as_expected = all(run["as_expected"] for run in runs)
    is_on_server = all(run["grown"]["server"] == server for run in runs)
    is_repeated = bool(growth.summarize_repetitions(runs))
    return has_all_sizes and is_as_expected and is_on_server and not is_repeated


def make_load_tables(results: Path) -> str:
    """Return the tables of the newest complete runs of `make load`, each under a heading.

    A complete run has at least MIN_LOAD_ROUNDS rounds, all with the expected verdict. There is one
    table for each kind of load. The kinds differ in the number of products (one or many), in
    whether a purchase holds its lock for some time, in the load model, and in the number of nodes.
    """
    tables: dict[tuple[bool, bool, bool, int], str] = {}
    for path in sorted(results.glob(f"[0-9]*/{load_table.FILENAME}")):
        summary = _read_summary(path)
        is_complete = summary["rounds"] >= MIN_LOAD_ROUNDS
        if is_complete and all(run["as_expected"] for run in summary["runs"]):
            load = summary["load"]
            has_many_products = load["products"] > 1
            holds_the_lock = load["hold_ms"] > 0
            has_arrival_rate = load["arrivals_per_second"] > 0
            kind = (has_many_products, holds_the_lock, has_arrival_rate, load["nodes"])
            # A later run replaces an earlier run of the same kind.
            tables[kind] = f"### {load_table.make_title(summary)}\n\n{path.read_text()}"
    return "\n".join(tables[kind] for kind in sorted(tables))


def main(results: Path = RESULTS, root: Path = ROOT) -> None:
    """Replace each table for which there are complete results, and write docs/faults.md.

    If there are no complete results for a table, print the command that makes them. For a table of
    `make growth` nothing is printed.
    """
    readme_page = root / "README.md"
    strategies_page = root / "docs" / "strategies.md"
    scale_page = root / "docs" / "scale.md"
    demo = find_newest(results, "demo.md", is_default_demo)
    matrix = find_newest(results, "matrix.md", is_complete_matrix)
    faults = find_newest(results, "faults.md", is_complete_faults_run)
    if demo is None:
        print("README.md: the table of the demo stays as it is; run `make demo` without ARGS first")
    else:
        replace_table(readme_page, "demo", make_demo_table(demo))
    if matrix is None or faults is None:
        print(
            "the tables of faults in README.md, docs/strategies.md and docs/faults.md stay as they "
            "are; run `make matrix` and `make faults` without ARGS first"
        )
    else:
        replace_table(readme_page, "faults", make_faults_table(matrix, faults))
        replace_table(strategies_page, "locks", make_locks_table(matrix, faults))
        cells = cast(Sequence[Cell], faults["runs"])
        (root / "docs" / "faults.md").write_text(fault_report.make_markdown(faults, cells))
    if matrix is not None:
        write_databases_table(results, root / "docs" / "databases.md", matrix)
    if tables := make_load_tables(results):
        replace_table(scale_page, "load", tables)
    else:
        print(
            "docs/scale.md: the tables of `make load` stay as they are; run it first, "
            f"with --rounds {MIN_LOAD_ROUNDS}"
        )
    for table, server in GROWTH_TABLES.items():
        complete_growth = find_newest(
            results, "growth.md", partial(is_complete_growth, server=server)
        )
        if complete_growth is not None:
            replace_table(scale_page, table, growth.make_markdown(complete_growth))


def write_databases_table(results: Path, page: Path, on_postgres: Summary) -> None:
    """Write the table of the databases into its page, if every database has a complete run.

    Some databases run only on a server that the user provides. Such a database needs no run; its
    column then says "not run".

    on_postgres  the complete run of `make matrix` on PostgreSQL
    """
    summaries: dict[str, Summary | None] = {}
    for name, database in DATABASES.items():
        summary: Summary | None = on_postgres
        if name != POSTGRES:
            summary = find_newest(
                results, make_results_filename("matrix", name), is_complete_matrix
            )
        if summary is not None:
            summaries[database.make_title(report.describe_database(summary))] = summary
        elif database.needs_url:
            summaries[database.title] = None
        else:
            print(
                "docs/databases.md stays as it is; "
                f'run `make matrix ARGS="--database {name}"` first'
            )
            return
    replace_table(page, "databases", make_databases_table(summaries, on_postgres))


def make_databases_table(summaries: Mapping[str, Summary | None], on_postgres: Summary) -> str:
    """Return a table of each strategy's rush on each database: verdict, orders, stock and time.

    In a rush all buyers arrive at once.

    summaries    title of a database -> its run of `make matrix`; None if it has none
    on_postgres  the run on PostgreSQL, whose strategies are the rows
    """
    runs_by_database: dict[str, dict[str, Run]] = {}
    for title, summary in summaries.items():
        runs_by_database[title] = {}
        if summary is not None:
            rushes = [run for run in summary["runs"] if run["fault"] == "rush"]
            runs_by_database[title] = {run["lock"]: run for run in rushes}
    rows = []
    for lock in dict.fromkeys(run["lock"] for run in on_postgres["runs"]):
        row = [f"`{lock}`"]
        row += [_format_database_cell(runs.get(lock)) for runs in runs_by_database.values()]
        rows.append(row)
    dates = sorted({summary["started"][:10] for summary in summaries.values() if summary})
    below = (
        "Orders / stock left, seconds of the rush; one run each. "
        f"{report.describe_setup(on_postgres)} Dates of the runs: {', '.join(dates)}."
    )
    headings = ["strategy"] + list(summaries)
    return report.markdown_table(headings, rows, below, left=len(headings))


def _format_database_cell(run: Run | None) -> str:
    """Return an entry of the table of databases, such as `**EXACT** 100/0, 1.2`, or `not run`.

    The numbers are the orders, the stock that is left, and the seconds of the run.
    """
    if run is None or run["verdict"] == "not_run":
        return "not run"
    columns = ("orders", "stock left", "seconds")
    orders, stock_left, seconds = report.format_figures(run, [run], columns)
    return f"{report.make_bold_verdict(run['verdict'])} {orders}/{stock_left}, {seconds}"


def make_demo_table(demo: Summary) -> str:
    """Return the table of `make demo`: a row for each strategy, with its verdict and figures."""
    figures = ["orders", "stock left", "lost updates"]
    rows = []
    for run in demo["runs"]:
        lock = run["lock"]
        row = [f"`{lock}`: {DEMO_STRATEGIES[lock]}", report.make_bold_verdict(run["verdict"])]
        row += report.format_figures(run, demo["runs"], figures)
        rows.append(row)
    stock = demo["runs"][0]["initial_stock"]
    setup = (
        f"{demo['nodes']} nodes of the shop, no artificial delay; "
        f"{report.describe_machine_and_date(demo)}. "
        f"Lost updates: orders, less the units that left the stock of {stock}."
    )
    return report.markdown_table(["what guards the stock", "verdict"] + figures, rows, setup)


def make_faults_table(matrix: Summary, faults: Summary) -> str:
    """Return the table in README.md: the strategies' verdicts in the rush, and what broke them.

    In a rush all buyers arrive at once. The rows are README_STRATEGIES. A fault breaks a strategy
    if the verdict under it is not `exact`. The line below the table lists all strategies that
    nothing broke.

    matrix  the results of the rush without a fault
    faults  the results of the faults
    """
    rush_verdicts = {
        run["lock"]: run["verdict"] for run in matrix["runs"] if run["fault"] == "rush"
    }
    breaking_faults = {
        lock: _describe_breaking_faults(lock, verdict, faults)
        for lock, verdict in rush_verdicts.items()
    }
    rows = [
        [
            f"`{lock}`: {description}",
            report.make_bold_verdict(rush_verdicts[lock]),
            breaking_faults[lock],
        ]
        for lock, description in README_STRATEGIES.items()
        if lock in rush_verdicts
    ]
    unbroken = [
        f"`{lock}`"
        for lock, faults_text in breaking_faults.items()
        if faults_text == NOTHING_BROKE_IT
    ]
    below = (
        f"{len(unbroken)} of {len(rush_verdicts)} stayed exact throughout: {', '.join(unbroken)}. "
        f"{len(faults['runs'])} cells, {faults['started'][:10]}. The table leaves out "
        f"{OMITTED_FAULTS_TEXT}, which no lock survives by itself."
    )
    headings = ["what guards the stock", "in the rush", "broken by"]
    return report.markdown_table(headings, rows, below, left=3)


def make_locks_table(matrix: Summary, faults: Summary) -> str:
    """Return the table of all strategies: verdict and time of the rush, and what broke them.

    In a rush all buyers arrive at once. A fault breaks a strategy if the verdict under it is not
    `exact`.

    matrix  the results of the rush without a fault
    faults  the results of the faults
    """
    runs = matrix["runs"]
    lines = ["| lock | in the rush | s | time / row-lock | broken by |", "|---|---|--:|--:|---|"]
    for run in runs:
        row = [report.make_run_label(run, quote="`"), report.make_bold_verdict(run["verdict"])]
        row += report.format_figures(run, runs, ("seconds", "time / row-lock"))
        row.append(_describe_breaking_faults(run["lock"], run["verdict"], faults))
        lines.append(f"| {' | '.join(row)} |")
    below = (
        f"{report.describe_setup(matrix)} {len(faults['runs'])} cells of `make faults`, "
        f"{faults['started'][:10]}. The table leaves out {OMITTED_FAULTS_TEXT}, "
        "which no lock survives by itself: see docs/verdicts.md."
    )
    lines += ["", below]
    return "\n".join(lines) + "\n"


def _describe_breaking_faults(lock: str, rush_verdict: str, faults: Summary) -> str:
    """Return the faults that broke a strategy as text, such as `slow, pause; deadlock: crash`.

    In this example the strategy oversold under `slow` and under `pause`, and the verdict under
    `crash` was `deadlock`. The text is `any rush` if the strategy oversold without a fault,
    NOTHING_BROKE_IT if no fault broke it, and empty if it was not run under any fault.
    """
    cells = [cell for cell in faults["runs"] if cell["lock"] == lock]
    if rush_verdict == "oversold":
        return "any rush"
    if not cells:
        return ""
    faults_by_verdict: dict[str, list[str]] = {"oversold": []}
    for cell in cells:
        if cell["verdict"] != "exact" and cell["fault"] not in FAULTS_BEYOND_LOCKS:
            faults_by_verdict.setdefault(cell["verdict"], []).append(cell["fault"])
    groups = []
    overselling_faults = faults_by_verdict.pop("oversold")
    if overselling_faults:
        groups.append(", ".join(overselling_faults))
    groups += [f"{verdict}: {', '.join(names)}" for verdict, names in faults_by_verdict.items()]
    return "; ".join(groups) or NOTHING_BROKE_IT


def _read_summary(table: Path) -> Summary:
    """Return the content of the summary.json that a command wrote next to a table."""
    summary: Summary = json.loads(table.with_name("summary.json").read_text())
    return summary


if __name__ == "__main__":
    main()
