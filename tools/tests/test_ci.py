"""The commands of CI: what `.ci/run` repeats, and with which settings `make test` runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from servers.embedded import ROOT

#: The exit code of a run that allows no conclusion (docs/verdicts.md).
INCONCLUSIVE = 6
#: Stands in for every program. It appends its name and arguments to the file $CALLS. If they match
#: the pattern $FAILING, it ends with the first exit code in the file $CODES, and removes this line.
#: For `python3 -m venv FOLDER` it links itself into the folder as `python`.
STUB = """#!/bin/sh
line="$(basename "$0") $*"
echo "$line" >> "$CALLS"
case "$line" in
    "python3 -m venv"*)
        for folder; do :; done  # the last argument
        mkdir -p "$folder/bin"
        ln -sf "$STUB" "$folder/bin/python" ;;
esac
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
    """Run a copy of `.ci/run` with stubs in place of all programs.

    Returns its exit code, and those of its calls of programs that match `failing`, a shell pattern.
    The first of these calls ends with the first of the codes, the second with the second, and so
    on. A call for which there is no code succeeds.
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
    # The stub fails if there is no code in the file, so some codes of success come last.
    codes_file.write_text("".join(f"{code}\n" for code in [*codes, 0, 0, 0]))
    process = subprocess.run(
        ["bash", str(folder / ".ci" / "run")],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(calls_file),
            "CODES": str(codes_file),
            "STUB": str(stub),
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
    """`codes` are the exit codes of the first and the second run of a command of loadtest.

    `expected_code` is the exit code of `.ci/run`.
    """
    code, calls = run_ci(tmp_path, f"python -m loadtest {command}*", codes)
    assert (code, len(calls)) == (expected_code, expected_runs)


@pytest.mark.parametrize("target", ["test", "test-slow", "test-workshop"])
def test_failed_tests_are_not_repeated(tmp_path: Path, target: str) -> None:
    """`make` fails, and would succeed the second time. A repetition would hide a rare race."""
    code, calls = run_ci(tmp_path, f"make {target}", [2, 0])
    assert code == 2
    # `.ci/run` stops here: after `make test`, it would otherwise call `make test-slow`.
    assert calls[-1] == f"make {target}"
    assert calls.count(f"make {target}") == 1


def test_failed_tests_of_the_locks_are_not_repeated(tmp_path: Path) -> None:
    code, calls = run_ci(tmp_path, "make -j 2*", [2, 0])
    assert (code, len(calls)) == (2, 1)


def test_named_tests_of_the_locks_run_with_the_settings_of_the_project() -> None:
    """`make test-slow ARGS=...` names a test module of locks/, and runs with pyproject.toml.

    By default pytest would read locks/pytest.ini. Then the plugin that repeats a flaky test, and
    the option `--slow`, would be missing.
    """
    module = "locks/tests/test_lease.py"
    command = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "test-slow", f"ARGS={module}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    header = subprocess.run(
        f"{command} -n 0 --collect-only",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "configfile: pyproject.toml" in header.stdout, header.stdout + header.stderr
    assert header.returncode == 0
