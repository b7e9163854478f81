"""`.ci/run` repeats only inconclusive load tests, and `make` runs tests with the right settings."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from servers.embedded import ROOT

#: The exit code of a load test whose result allows no conclusion (docs/verdicts.md).
INCONCLUSIVE = 6
#: A script that replaces every program. It appends its name and arguments to the file $CALLS. If
#: they match the pattern $FAILING, the script removes the first line of the file $CODES, and ends
#: with the exit code in this line. Otherwise it succeeds.
STUB = """#!/bin/sh
line="$(basename "$0") $*"
echo "$line" >> "$CALLS"
case "$line" in
    $FAILING)
        code=$(sed -n 1p "$CODES")
        sed -i 1d "$CODES"
        exit "$code" ;;
esac
"""
#: The programs that `.ci/run` calls, and those that it would install if they were missing.
PROGRAMS = (
    "make",
    "python3",
    "apt-get",
    "sudo",
    "java",
    "chromium-headless-shell",
    "pgbouncer",
    "redis-server",
)


def run_ci(folder: Path, failing: str, codes: list[int]) -> tuple[int, list[str]]:
    """Run a copy of `.ci/run` with STUB in place of all programs.

    Returns the exit code of `.ci/run`, and the commands that it called and that match `failing`.

    failing  a shell pattern for commands. The first command that matches ends with the first exit
             code in `codes`, the second with the second, and so on; further ones succeed
    """
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
    stub = folder / "stub"
    stub.write_text(STUB)
    stub.chmod(0o755)
    programs = folder / "programs"
    for bin_folder, names in ((programs, PROGRAMS), (folder / ".venv" / "bin", ("python",))):
        bin_folder.mkdir(parents=True)
        for name in names:
            (bin_folder / name).symlink_to(stub)
    calls_file = folder / "calls"
    codes_file = folder / "codes"
    # The codes of success at the end are for further commands, because STUB needs a code for each.
    codes_file.write_text("".join(f"{code}\n" for code in [*codes, 0, 0, 0]))
    process = subprocess.run(
        ["bash", str(folder / ".ci" / "run")],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(calls_file),
            "CODES": str(codes_file),
            "FAILING": failing,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    prefix = failing.removesuffix("*")
    calls = [line for line in calls_file.read_text().splitlines() if line.startswith(prefix)]
    return process.returncode, calls


@pytest.mark.parametrize("command", ["faults", "chaos"])
@pytest.mark.parametrize(
    ("codes", "expected_code", "expected_runs"),
    [
        ([0], 0, 1),
        ([INCONCLUSIVE, 0], 0, 2),
        ([INCONCLUSIVE, INCONCLUSIVE], INCONCLUSIVE, 2),
        ([1, 0], 1, 1),
        ([2, 0], 2, 1),
        ([INCONCLUSIVE, 1], 1, 2),
    ],
)
def test_only_an_inconclusive_run_is_repeated(
    tmp_path: Path, command: str, codes: list[int], expected_code: int, expected_runs: int
) -> None:
    """`.ci/run` runs a load test once more if its result allows no conclusion.

    codes          the exit codes of the first and the second run of the load test
    expected_code  the exit code of `.ci/run`
    expected_runs  how often `.ci/run` runs the load test
    """
    code, calls = run_ci(tmp_path, f"python -m loadtest {command}*", codes)
    assert (code, len(calls)) == (expected_code, expected_runs)


@pytest.mark.parametrize("target", ["test", "test-slow", "test-workshop"])
def test_failed_tests_are_not_repeated(tmp_path: Path, target: str) -> None:
    """`make` fails with 2, and would succeed if it were repeated. A repetition could hide a race.

    After the failure `.ci/run` calls no further command.
    """
    code, calls = run_ci(tmp_path, f"make {target}", [2, 0])
    assert code == 2
    assert calls[-1] == f"make {target}"
    assert calls.count(f"make {target}") == 1


def test_failed_tests_of_the_locks_are_not_repeated(tmp_path: Path) -> None:
    """If the tests of the locks fail, `.ci/run` calls no further command.

    It runs them by `make -j 2 test-redis-py-...`, with two versions of redis-py at the same time.
    """
    code, calls = run_ci(tmp_path, "make -j 2*", [2, 0])
    assert code == 2
    assert len(calls) == 1


def test_locks_are_tested_on_redis_with_the_named_redis_py() -> None:
    """`make test-redis-py-7.4` installs the newest redis-py 7.4.x, and the tests start Redis."""
    commands = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "test-redis-py-7.4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert 'pip install -q "redis~=7.4.0"' in commands
    assert "LOCKS_TEST_SERVER=$(command -v redis-server)" in commands


def test_make_runs_one_module_of_the_locks_with_pyproject_toml() -> None:
    """`make test-slow ARGS=MODULE` uses the settings in pyproject.toml for a module of locks/.

    Without an option, pytest would read locks/pytest.ini. Then the plugin tools.module_order, with
    its option `--slow`, would be missing.
    """
    module = "locks/tests/test_lease.py"
    command = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "test-slow", f"ARGS={module}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    collection = subprocess.run(
        f"{command} -n 0 --collect-only",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "configfile: pyproject.toml" in collection.stdout, collection.stdout + collection.stderr
    assert collection.returncode == 0
