"""A test of a module that a busy machine may fail is run once more, and named."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
attempts = []


def test_fails_once():
    attempts.append(1)
    assert len(attempts) == 2


def test_fails():
    raise AssertionError
"""


def run_tests(file: Path, root: Path) -> str:
    file.parent.mkdir(parents=True)
    file.write_text(TESTS)
    plugins = ("-p", "tools.module_order", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "--rootdir", str(root), str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout


def test_only_listed_modules_are_repeated_and_only_once(tmp_path: Path) -> None:
    listed = run_tests(tmp_path / "testing" / "tests" / "test_listed.py", tmp_path)
    assert "REPEATED testing/tests/test_listed.py::test_fails_once: a wait is" in listed
    assert "1 failed, 1 passed" in listed
    unlisted = run_tests(tmp_path / "other" / "test_unlisted.py", tmp_path)
    assert "REPEATED" not in unlisted
    assert "2 failed" in unlisted
