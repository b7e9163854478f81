"""A failed test is run once more, and named, if a busy machine may fail its module."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A module whose first try of its first test leaves a running process as garbage. If the garbage is
#: collected in the next test, its ResourceWarning fails that test.
MODULE = """
import gc
import subprocess
import sys

attempts = []


def test_fails_once():
    attempts.append(1)
    left_running = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9)"])
    if len(attempts) == 2:
        left_running.kill()
        left_running.wait()
    assert len(attempts) == 2, "the first try fails"


def test_collects_garbage():
    gc.collect()


def test_fails():
    raise AssertionError
"""


def run_tests(file: Path, root: Path) -> str:
    """Write the tests in MODULE to a file, run them, and return the output of pytest.

    Warnings are errors. The plugin tools.module_order repeats a test if its path below `root` is in
    FLAKY.
    """
    file.parent.mkdir(parents=True)
    file.write_text(MODULE)
    plugins = ("-p", "tools.module_order", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-W", "error", "-c", "/dev/null"]
    process = subprocess.run(
        [*command, "--rootdir", str(root), str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return process.stdout


def test_only_listed_modules_are_repeated_and_only_once(tmp_path: Path) -> None:
    """MODULE has a test that fails once, a test that always fails, and a test between them.

    The test between them collects the garbage that the first one leaves when it fails.
    """
    listed_output = run_tests(tmp_path / "testing" / "tests" / "test_listed.py", tmp_path)
    assert "REPEATED testing/tests/test_listed.py::test_fails_once: a wait is" in listed_output
    assert "AssertionError: the first try fails" in listed_output
    assert "test_collects_garbage" not in listed_output, (
        "the garbage of the failed test must not fail another test"
    )
    assert "1 failed, 2 passed" in listed_output
    unlisted_output = run_tests(tmp_path / "other" / "test_unlisted.py", tmp_path)
    assert "REPEATED" not in unlisted_output
    # In a module that is not listed, test_collects_garbage fails, too: nothing has collected the
    # garbage of test_fails_once before.
    assert "3 failed" in unlisted_output
