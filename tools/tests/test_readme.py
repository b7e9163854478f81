"""The commands in README.md run, and the tables that tools.readme writes are correct.

tools.readme makes the tables in README.md and docs/ from the results of complete load tests.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS
from loadtest.tests.checkout import ROOT, assert_nothing_is_left, make_user_environment
from tools import readme
from tools.tests.conftest import make_summary

README = (ROOT / "README.md").read_text()
STRATEGIES_PAGE = (ROOT / "docs" / "strategies.md").read_text()
#: The commands in README.md, each as a list of words.
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]
#: Commands that .ci/run runs. A test cannot run them, because they run all tests.
COMMANDS_RUN_BY_CI = [["make", "test"]]
#: Commands that run until Ctrl-C. loadtest/tests/test_serve.py tests them.
COMMANDS_UNTIL_CTRL_C = [["make", "serve"]]
#: The least number of commands in README.md that are in neither of these two lists. If there are
#: fewer, the pattern in COMMANDS does not match.
MIN_COMMANDS = 6
#: The least number of strategies in the table of docs/strategies.md.
MIN_STRATEGIES = 28


def test_commands_that_ci_runs_are_those_of_the_readme() -> None:
    """README.md has the commands in COMMANDS_RUN_BY_CI, and `.ci/run` runs them.

    `.ci/run` also runs `make lint`, which CONTRIBUTING.md tells contributors to run.
    """
    script = (ROOT / ".ci" / "run").read_text()
    for command in COMMANDS_RUN_BY_CI:
        assert command in COMMANDS
        assert re.search(rf"^{' '.join(command)}($| \|\| )", script, re.MULTILINE)
    assert "\nmake lint\n" in script
    assert "\nmake lint " in (ROOT / "CONTRIBUTING.md").read_text()


def test_every_other_command_of_the_readme_runs_in_a_fresh_clone(clone: Path) -> None:
    """CI runs some commands of README.md, and some run until Ctrl-C. All other commands succeed.

    Afterwards README.md has the table of the demo, and no process is left running.
    """
    venv = Path(sys.executable).parent.parent
    (clone / ".venv").symlink_to(venv)
    (venv / ".installed").touch()  # with this file, make does not install the packages again
    commands = [
        command for command in COMMANDS if command not in COMMANDS_RUN_BY_CI + COMMANDS_UNTIL_CTRL_C
    ]
    assert len(commands) >= MIN_COMMANDS
    for command in commands:
        process = subprocess.run(
            command,
            cwd=clone,
            env=make_user_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # the environment may choose an encoding other than UTF-8
            timeout=120,
        )
        assert process.returncode == 0, (command, process.stdout, process.stderr)
    assert (
        readme.format_begin_marker("demo") + "\n| what guards the stock |"
        in (clone / "README.md").read_text()
    )
    assert_nothing_is_left(clone)


def read_table(name: str, page: str = README) -> str:
    """Return the table `name` from the text of a page: the lines between its two markers."""
    after_begin = page.partition(readme.format_begin_marker(name))[2]
    return after_begin.partition(readme.format_end_marker(name))[0]


def test_tables_in_the_repository_are_complete_and_agree() -> None:
    """In the table of the demo, `none` oversells, and both strategies with a lock are exact.

    README.md and docs/strategies.md agree on the strategies that no fault broke.
    """
    demo_table = read_table("demo")
    assert re.search(r"\| `none`: nothing \| \*\*OVERSOLD\*\* \| 200 \|", demo_table)
    for lock in ("token", "redis"):
        assert re.search(rf"\| `{lock}`: .+ \| \*\*EXACT\*\* \| 100 \| 0 \| 0 \|", demo_table)
    assert re.search(r"\d+ CPUs, Python 3\.\d+\.\d+, PostgreSQL \d+", demo_table)
    locks_table = read_table("locks", STRATEGIES_PAGE)
    strategies = re.findall(r"^\| `([a-z-]+)` \|", locks_table, re.M)
    file_names = {path.stem for path in (ROOT / "shop" / "strategies").glob("*.py")}
    assert {name.replace("-", "_") for name in strategies} <= file_names
    assert len(strategies) >= MIN_STRATEGIES
    unbroken = re.findall(r"^\| `([a-z-]+)` .* nothing here \|$", locks_table, re.M)
    names = ", ".join(f"`{name}`" for name in unbroken)
    sentence = f"{len(unbroken)} of {len(strategies)} stayed exact throughout: {names}."
    assert sentence in read_table("faults")
    page = (ROOT / "docs" / "faults.md").read_text()
    assert not re.search(r"\bpids?\b|(localhost|127\.0\.0\.1):", page), (
        "docs/faults.md has a pid or an address of this machine"
    )


def test_page_without_its_markers_is_refused(tmp_path: Path) -> None:
    """A table is written between two markers. Without them, an error shows the missing lines."""
    page = tmp_path / "README.md"
    page.write_text("# no markers")
    with pytest.raises(ValueError, match=r"README\.md needs the line '<!-- demo: begin"):
        readme.replace_table(page, "demo", "| table |\n")


def make_run(lock: str, fault: str, verdict: str, **fields: object) -> Any:
    """Return a run of a strategy under a fault, as in the field `runs` of a summary.json."""
    return {"lock": lock, "fault": fault, "verdict": verdict, "as_expected": True, **fields}


def test_tables_say_under_which_faults_each_strategy_broke() -> None:
    """A verdict other than `exact` means that the fault broke the strategy.

    The fault db-failover is in FAULTS_BEYOND_LOCKS, which the tables leave out. So `row-lock` is
    unbroken in the tables, although it oversold under this fault.
    """
    rush = {"buyers": 200, "initial_stock": 100, "hold_ms": 0}
    matrix = make_summary(
        make_run("none", "rush", "oversold", duration_s=2.0, **rush),
        make_run("setnx", "rush", "exact", duration_s=3.0, **rush),
        make_run("row-lock", "rush", "exact", duration_s=1.0, **rush),
    )
    faults = make_summary(
        make_run("setnx", "crash", "deadlock"),
        make_run("setnx", "slow", "exact"),
        make_run("setnx", "restart", "oversold"),
        make_run("row-lock", "crash", "exact"),
        make_run("row-lock", "db-failover", "oversold"),
    )
    assert readme.make_locks_table(matrix, faults).splitlines()[:5] == [
        "| lock | in the rush | s | time / row-lock | broken by |",
        "|---|---|--:|--:|---|",
        "| `none` | **OVERSOLD** | 2.00 | 2.00 | any rush |",
        "| `setnx` | **EXACT** | 3.00 | 3.00 | restart; deadlock: crash |",
        "| `row-lock` | **EXACT** | 1.00 | 1.00 | nothing here |",
    ]
    faults_table = readme.make_faults_table(matrix, faults).splitlines()
    assert faults_table[2] == "| `setnx`: SETNX, DEL | **EXACT** | restart; deadlock: crash |"
    assert faults_table[-1].startswith(
        "1 of 3 stayed exact throughout: `row-lock`. 5 cells, 2026-01-02. "
    )


def test_database_without_a_run_is_not_run() -> None:
    """A cell says `not run` if its database has no results, or its strategy was not run there."""
    rush = {"buyers": 200, "initial_stock": 100, "hold_ms": 0}
    on_postgres = make_summary(
        make_run("none", "rush", "oversold", orders=200, stock_left=90, duration_s=2.0, **rush),
        make_run("reserve", "rush", "exact", orders=100, stock_left=0, duration_s=1.0, **rush),
    )
    on_mysql = make_summary(
        make_run("none", "rush", "oversold", orders=199, stock_left=91, duration_s=3.0, **rush),
        make_run("reserve", "rush", "not_run", **rush),
    )
    summaries = {"PostgreSQL": on_postgres, "MySQL 9": on_mysql, "MariaDB": None}
    assert readme.make_databases_table(summaries, on_postgres).splitlines()[:4] == [
        "| strategy | PostgreSQL | MySQL 9 | MariaDB |",
        "|---|---|---|---|",
        "| `none` | **OVERSOLD** 200/90, 2.00 | **OVERSOLD** 199/91, 3.00 | not run |",
        "| `reserve` | **EXACT** 100/0, 1.00 | not run | not run |",
    ]


def test_table_needs_every_strategy_every_fault_and_the_default_buyers(tmp_path: Path) -> None:
    """Results without some strategies or faults, or with other numbers of buyers, are not used."""
    faults: list[Any] = [
        {"lock": f"lock-{number}", "fault": fault, "verdict": "exact"}
        for number in range(readme.MAX_SELECTED_STRATEGIES + 1)
        for fault in FAULTS
    ]
    assert readme.is_complete_faults_run(faults)
    assert not readme.is_complete_faults_run(faults[:3])  # one strategy under three faults
    faults[3]["verdict"] = "unknown"
    assert not readme.is_complete_faults_run(faults)
    default_buyers = 200
    matrix: list[Any] = [{"lock": lock, "buyers": default_buyers} for lock in EXPECTED]
    assert readme.is_complete_matrix(matrix)
    # A matrix is complete if it has many strategies. Many runs of one strategy are not enough.
    runs_of_one_strategy = [run for run in matrix if run["lock"] == "redis"] * 30
    assert not readme.is_complete_matrix(runs_of_one_strategy)
    with_more_buyers: Any = [{**run, "buyers": 2000} for run in matrix]
    assert not readme.is_complete_matrix(with_more_buyers)
    folder = tmp_path / "2026-01-02T03-04-05"
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps({"runs": matrix[:1]}))
    (folder / "matrix.md").touch()
    assert readme.find_newest(tmp_path, "matrix.md", readme.is_complete_matrix) is None
    assert readme.find_newest(tmp_path, "matrix.md", lambda runs: True) is not None
