"""The README is true: its commands run, its table is a result, and it is short."""

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
from loadtest.tests.checkout import ROOT, assert_nothing_is_left, user_environment
from tools import readme
from tools.tests.conftest import summary

TEXT = (ROOT / "README.md").read_text()
STRATEGIES = (ROOT / "docs" / "strategies.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]
#: Run by .ci/run itself; a test cannot run the test suite.
IN_CI = [["make", "test"]]
#: Runs until Ctrl-C: test_serve.py.
UNTIL_CTRL_C = [["make", "serve"]]


def test_commands_that_ci_runs_are_those_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for command in IN_CI:
        assert command in COMMANDS
        assert re.search(rf"^{' '.join(command)}($| \|\| )", script, re.MULTILINE)
    assert "\nmake lint\n" in script
    assert "\nmake lint " in (ROOT / "CONTRIBUTING.md").read_text()


def test_every_other_command_of_the_readme_runs_in_a_fresh_clone(clone: Path) -> None:
    venv = Path(sys.executable).parent.parent  # installed already; CI's first step installs it
    (clone / ".venv").symlink_to(venv)
    (venv / ".installed").touch()
    commands = [command for command in COMMANDS if command not in IN_CI + UNTIL_CTRL_C]
    assert len(commands) >= 6
    for command in commands:
        process = subprocess.run(
            command,
            cwd=clone,
            env=user_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # it prints in whatever encoding the environment names
            timeout=120,
        )
        assert process.returncode == 0, (command, process.stdout, process.stderr)
    assert (
        readme.begin_marker("demo") + "\n| what guards the stock |"
        in (clone / "README.md").read_text()
    )
    assert_nothing_is_left(clone)


def table(name: str, text: str = TEXT) -> str:
    return text.partition(readme.begin_marker(name))[2].partition(readme.end_marker(name))[0]


def test_tables_come_from_results_and_agree() -> None:
    assert re.search(r"\| `none`: nothing \| \*\*OVERSOLD\*\* \| 200 \|", table("demo"))
    for lock in ("token", "redis"):
        assert re.search(rf"\| `{lock}`: .+ \| \*\*EXACT\*\* \| 100 \| 0 \| 0 \|", table("demo"))
    assert re.search(r"\d+ CPUs, Python 3\.\d+\.\d+, PostgreSQL \d+", table("demo"))
    every = re.findall(r"^\| `([a-z-]+)` \|", table("locks", STRATEGIES), re.M)
    files = {path.stem for path in (ROOT / "shop" / "strategies").glob("*.py")}
    assert {name.replace("-", "_") for name in every} <= files
    assert len(every) >= 28
    nothing = re.findall(r"^\| `([a-z-]+)` .* nothing here \|$", table("locks", STRATEGIES), re.M)
    listed = ", ".join(f"`{name}`" for name in nothing)
    assert f"{len(nothing)} of {len(every)} stayed exact throughout: {listed}." in table("faults")
    page = (ROOT / "docs" / "faults.md").read_text()
    assert not re.search(r"\bpids?\b|(localhost|127\.0\.0\.1):", page), "it names this machine"


def test_page_without_its_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("# no markers")
    with pytest.raises(ValueError, match=r"README\.md needs the line '<!-- demo: begin"):
        readme.replace_table(page, "demo", "| table |\n")


def run_of(lock: str, fault: str, verdict: str, **facts: object) -> Any:
    return {"lock": lock, "fault": fault, "verdict": verdict, "as_expected": True, **facts}


def test_table_of_locks_says_under_which_faults_each_broke() -> None:
    rush = {"buyers": 200, "initial_stock": 100, "hold_ms": 0}
    matrix = summary(
        run_of("none", "rush", "oversold", duration_s=2.0, **rush),
        run_of("setnx", "rush", "exact", duration_s=3.0, **rush),
        run_of("row-lock", "rush", "exact", duration_s=1.0, **rush),
    )
    faults = summary(
        run_of("setnx", "crash", "deadlock"),
        run_of("setnx", "slow", "exact"),
        run_of("setnx", "restart", "oversold"),
        run_of("row-lock", "crash", "exact"),
        run_of("row-lock", "db-failover", "oversold"),  # no lock's matter
    )
    assert readme.locks_table(matrix, faults).splitlines()[2:5] == [
        "| `none` | **OVERSOLD** | 2.00 | 2.00 | any rush |",
        "| `setnx` | **EXACT** | 3.00 | 3.00 | restart; deadlock: crash |",
        "| `row-lock` | **EXACT** | 1.00 | 1.00 | nothing here |",
    ]
    short = readme.faults_table(matrix, faults).splitlines()
    assert short[2] == "| `setnx`: SETNX, DEL | **EXACT** | restart; deadlock: crash |"
    assert short[-1].startswith("1 of 3 stayed exact throughout: `row-lock`. 5 cells, 2026-01-02. ")


def test_database_without_a_run_is_not_run() -> None:
    rush = {"buyers": 200, "initial_stock": 100, "hold_ms": 0}
    on_postgres = summary(
        run_of("none", "rush", "oversold", orders=200, stock_left=90, duration_s=2.0, **rush),
        run_of("reserve", "rush", "exact", orders=100, stock_left=0, duration_s=1.0, **rush),
    )
    on_mysql = summary(
        run_of("none", "rush", "oversold", orders=199, stock_left=91, duration_s=3.0, **rush),
        run_of("reserve", "rush", "not_run", **rush),
    )
    summaries = {"PostgreSQL": on_postgres, "MySQL 9": on_mysql, "MariaDB": None}
    assert readme.databases_table(summaries, on_postgres).splitlines()[:4] == [
        "| strategy | PostgreSQL | MySQL 9 | MariaDB |",
        "|---|---|---|---|",
        "| `none` | **OVERSOLD** 200/90, 2.00 | **OVERSOLD** 199/91, 3.00 | not run |",
        "| `reserve` | **EXACT** 100/0, 1.00 | not run | not run |",
    ]


def test_table_needs_a_whole_run_of_the_usual_size(tmp_path: Path) -> None:
    faults: list[Any] = [
        {"lock": f"lock-{number}", "fault": fault, "verdict": "exact"}
        for number in range(readme.MAX_SELECTED_STRATEGIES + 1)
        for fault in FAULTS
    ]
    assert readme.is_every_fault(faults)
    assert not readme.is_every_fault(faults[:3])
    faults[3]["verdict"] = "unknown"
    assert not readme.is_every_fault(faults)
    matrix: list[Any] = [{"lock": lock, "buyers": 200} for lock in EXPECTED]
    assert readme.is_every_strategy(matrix)
    assert not readme.is_every_strategy([run for run in matrix if run["lock"] == "redis"] * 30)
    large: Any = [{**run, "buyers": 2000} for run in matrix]
    assert not readme.is_every_strategy(large)
    folder = tmp_path / "2026-01-02T03-04-05"
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps({"runs": matrix[:1]}))
    (folder / "matrix.md").touch()
    assert readme.find_newest(tmp_path, "matrix.md", readme.is_every_strategy) is None
    assert readme.find_newest(tmp_path, "matrix.md", bool) is not None
