"""The plugin tools.module_order repeats a failed test once if its module is in FLAKY.

FLAKY lists the modules whose tests may fail on a busy machine. The summary lists each repeated test
as REPEATED.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The text of a test module. The first run of its first test fails, and leaves an object of a
#: running process as garbage. If the next test collected this garbage, a ResourceWarning would make
#: it fail.
TEST_MODULE = """
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
    """Write TEST_MODULE to a file, run its tests, and return the output of pytest.

    Warnings are errors.

    root  the folder that pytest takes for the root of the project: the paths in FLAKY begin there
    """
    file.parent.mkdir(parents=True)
    file.write_text(TEST_MODULE)
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
    """TEST_MODULE has a test that fails once, one that collects garbage, and one that always fails.

    testing/tests/ is in FLAKY. There the test that fails once is repeated, and its garbage is
    collected before the next test. Elsewhere no test is repeated, and the garbage makes the next
    test fail, so that all three tests fail.
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
    assert "3 failed" in unlisted_output
