"""`python -m loadtest` in a clone: the contrast, Ctrl-C and the clean-up.

The first test needs a fresh clone, and the last one leaves a defective shop in it.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from loadtest.judge.history import read
from loadtest.judge.intervals import ProductHistory
from loadtest.judge.run import Judged
from loadtest.tests.checkout import (
    assert_ctrl_c_leaves_nothing,
    assert_nothing_is_left,
    read_newest_runs,
    read_until_end,
    start_python,
)

#: Fields of every rush in addition to those of the judge.
FIGURES = ("lock", "fault", "hold_ms", "expected", "as_expected", "duration_s", "buy_ms")


@pytest.fixture(autouse=True)
def _without_the_results_of_the_test_before(clone: Path) -> None:
    shutil.rmtree(clone / "results", ignore_errors=True)


def test_two_demos_side_by_side_both_show_the_contrast(clone: Path) -> None:
    """One Locust makes all rushes of a demo: in a single process, or with two workers."""
    demo = ("-m", "loadtest", "--lock", "none,redis", "--locust-workers")
    demos = [start_python(clone, *demo, workers) for workers in "12"]
    printed = [read_until_end(demo) for demo in demos]

    assert [demo.returncode for demo in demos] == [0, 0], printed
    assert_nothing_is_left(clone)
    results = [path for path in (clone / "results").iterdir() if not path.is_symlink()]
    assert len(results) == 2
    for folder in results:
        summary = json.loads((folder / "summary.json").read_text())
        for run in summary["runs"]:
            assert set(run) >= {*Judged.__annotations__, *FIGURES}
            assert_contrast(run)
            assert (folder / f"{run['lock']}.html").stat().st_size > 10_000
        assert (folder / "run.log").is_file()
        assert_recorded(folder, summary)
    assert (clone / "results" / "latest" / "summary.json").is_file()


def assert_recorded(folder: Path, summary: dict[str, Any]) -> None:
    """Assert that every buyer was recorded: its request, its read of the stock and its answer."""
    events = read([folder / "history.jsonl"])
    for run in summary["runs"]:
        history = [e for e in events if e.get("attempt", "").startswith(run["attempts"])]
        requests = ProductHistory(history).requests
        assert len(requests) >= 200
        assert all(request.answered_at for request in requests)
        assert len({e["attempt"] for e in history if e["f"] == "after_read"}) == 200
    assert '"timeline":{"lanes":[["buyer-' in (folder / "report.html").read_text()


def assert_contrast(run: dict[str, Any]) -> None:
    assert run["as_expected"], run
    assert run["hold_ms"] == 0
    if run["lock"] == "none":
        assert run["verdict"] == "oversold"
        assert run["orders"] >= 150
        assert run["stock_left"] > 0
        assert run["violations"] == ["lost_update", "stale_write"]
        assert (run["never_arrived"], run["never_asked"], run["never_answered"]) == (0, 0, 0)
    else:
        assert (run["verdict"], run["orders"], run["stock_left"]) == ("exact", 100, 0)
        counts = {outcome: count for outcome, count in run["outcomes"].items() if count}
        assert counts == {"sold": 100, "sold_out": 100}
        assert run["violations"] == []


def test_ctrl_c_during_the_run_leaves_nothing(clone: Path) -> None:
    demo = start_python(clone, "-m", "loadtest", "--lock", "none", "--hold-ms", "3000")
    assert demo.stdout is not None
    assert any("lock: none" in line for line in demo.stdout)
    assert_ctrl_c_leaves_nothing(demo, clone)
    assert not list((clone / "results").iterdir())


SELLS = "            return STRATEGIES[attempt.lock].buy(attempt)\n"
#: Under `token` a third of the buyers are sent away at once, under `redis` no buyer takes the lock
#: (the row's own makes it right), and under `none` a node writes lines that are none.
PLANTS = {
    "shop/sale/checkout.py": (
        SELLS,
        '            if attempt.lock == "token" and int(attempt.buyer.split("-")[1]) % 3 == 2:\n'
        "                raise SoldOut\n"
        '            if attempt.lock == "redis":\n'
        f"                return STRATEGIES['row-lock'].buy(attempt)\n{SELLS}",
    ),
    "demo/hooks.py": (
        'text = "".join(',
        'garbled = b"{gar\\n" if any(event.get("lock") == "none" for event in events) else b""\n'
        '        text = garbled + "".join(',
    ),
}


def test_planted_defect_leaves_the_demo_without_a_verdict(clone: Path) -> None:
    for file, (old, new) in PLANTS.items():
        text = (clone / file).read_text()
        assert text.count(old) == 1, file
        (clone / file).write_text(text.replace(old, new))
    demo = start_python(clone, "-m", "loadtest", "--buyers", "30", "--stock", "15")
    printed = read_until_end(demo)
    assert demo.returncode == 1, printed
    assert "Traceback" not in printed
    runs = {run["lock"]: run for run in read_newest_runs(clone / "results")}
    verdicts = {lock: run["verdict"] for lock, run in runs.items()}
    assert verdicts == {"none": "oversold", "token": "unknown", "redis": "unknown"}
    rules = {"none": "broken_history", "token": "unrecorded", "redis": "unlocked"}
    for lock, rule in rules.items():
        assert rule in runs[lock]["violations"], runs[lock]
    assert f"token: {runs['token']['why'][:40]}" in printed
    assert_nothing_is_left(clone)
