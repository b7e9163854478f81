"""The demo, `python -m loadtest`, in a copy of the project: its verdicts and its end after Ctrl-C.

In a rush of the demo many buyers buy at once. The first test needs a fresh copy of the project, and
the last one leaves a defective shop in the copy.
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

#: The buyers and the units of a demo without options.
BUYERS = 200
STOCK = 100
#: Fields of every run in summary.json, besides those that the judge sets.
RUSH_FIELDS = ("lock", "fault", "hold_ms", "expected", "as_expected", "duration_s", "buy_ms")


@pytest.fixture(autouse=True)
def _remove_earlier_results(clone: Path) -> None:
    shutil.rmtree(clone / "results", ignore_errors=True)


def test_two_demos_at_the_same_time_have_the_same_verdicts(clone: Path) -> None:
    """In each of two demos `none` oversells and `redis` is exact.

    One demo runs Locust in one process, and the other with two workers.
    """
    command = ("-m", "loadtest", "--lock", "none,redis", "--locust-workers")
    demos = [start_python(clone, *command, worker_count) for worker_count in ("1", "2")]
    outputs = [read_until_end(demo) for demo in demos]

    assert [demo.returncode for demo in demos] == [0, 0], outputs
    assert_nothing_is_left(clone)
    folders = [path for path in (clone / "results").iterdir() if path.name != "latest"]
    assert len(folders) == 2
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        for run in summary["runs"]:
            assert set(run) >= {*Judged.__annotations__, *RUSH_FIELDS}
            assert_oversold_without_a_lock_else_exact(run)
            assert (folder / f"{run['lock']}.html").stat().st_size > 10_000, "Locust's report"
        assert (folder / "run.log").is_file()
        assert_report_and_history_have_every_buyer(folder, summary)
    assert (clone / "results" / "latest" / "summary.json").is_file()


def assert_report_and_history_have_every_buyer(folder: Path, summary: dict[str, Any]) -> None:
    """Assert that the history has a request, an answer and a read of the stock for every buyer.

    The report must have a timeline with a lane for each buyer.
    """
    events = read([folder / "history.jsonl"])
    for run in summary["runs"]:
        key_prefix = run["attempts"]
        run_events = [event for event in events if event.get("attempt", "").startswith(key_prefix)]
        requests = ProductHistory(run_events).requests
        assert len(requests) >= BUYERS  # more if a buyer repeats its request
        assert all(request.answered_at for request in requests)
        readers = {event["attempt"] for event in run_events if event["f"] == "after_read"}
        assert len(readers) == BUYERS
    assert '"timeline":{"lanes":[["buyer-' in (folder / "report.html").read_text()


def assert_oversold_without_a_lock_else_exact(run: dict[str, Any]) -> None:
    """Assert that a run under `none` sells at least 50 % too much, and any other run is exact."""
    assert run["as_expected"], run
    assert run["hold_ms"] == 0
    if run["lock"] == "none":
        assert run["verdict"] == "oversold"
        assert run["orders"] >= 1.5 * STOCK, "at least 50 % too much should be sold"
        assert run["stock_left"] > 0
        assert run["violations"] == ["lost_update", "stale_write"]
        assert (run["never_arrived"], run["never_asked"], run["never_answered"]) == (0, 0, 0)
    else:
        assert (run["verdict"], run["orders"], run["stock_left"]) == ("exact", STOCK, 0)
        counts = {outcome: count for outcome, count in run["outcomes"].items() if count}
        assert counts == {"sold": STOCK, "sold_out": BUYERS - STOCK}
        assert run["violations"] == []


def test_ctrl_c_during_the_run_leaves_nothing(clone: Path) -> None:
    """Ctrl-C is pressed after the demo has printed that its rush begins."""
    demo = start_python(clone, "-m", "loadtest", "--lock", "none", "--hold-ms", "3000")
    assert demo.stdout is not None
    assert any("lock: none" in line for line in demo.stdout)
    assert_ctrl_c_leaves_nothing(demo, clone)
    assert not list((clone / "results").iterdir())


#: The line of shop/sale/checkout.py that makes a purchase.
BUY_LINE = "            return STRATEGIES[attempt.lock].buy(attempt)\n"
#: Defects: file -> a text in it, and the defective text that replaces it. Under `token` a third of
#: the buyers are answered `sold_out` at once. Under `redis` the buyers take a row lock instead of
#: the Redis lock. Under `none` the nodes write damaged lines into the history.
DEFECTS = {
    "shop/sale/checkout.py": (
        BUY_LINE,
        '            if attempt.lock == "token" and int(attempt.buyer.split("-")[1]) % 3 == 2:\n'
        "                raise SoldOut\n"
        '            if attempt.lock == "redis":\n'
        f"                return STRATEGIES['row-lock'].buy(attempt)\n{BUY_LINE}",
    ),
    "demo/hooks.py": (
        'text = "".join(',
        'garbled = b"{gar\\n" if any(event.get("lock") == "none" for event in events) else b""\n'
        '        text = garbled + "".join(',
    ),
}


def test_judge_finds_the_defects_of_a_shop(clone: Path) -> None:
    """DEFECTS are put into a copy of the project. Each of them violates a rule of the judge.

    A violation makes the verdict `unknown`. Only `none` is still `oversold`, because it has too
    many orders.
    """
    for file, (old, new) in DEFECTS.items():
        text = (clone / file).read_text()
        assert text.count(old) == 1, file
        (clone / file).write_text(text.replace(old, new))
    demo = start_python(clone, "-m", "loadtest", "--buyers", "30", "--stock", "15")
    output = read_until_end(demo)
    assert demo.returncode == 1, output
    assert "Traceback" not in output
    runs = {run["lock"]: run for run in read_newest_runs(clone / "results")}
    verdicts = {lock: run["verdict"] for lock, run in runs.items()}
    assert verdicts == {"none": "oversold", "token": "unknown", "redis": "unknown"}
    rules = {"none": "broken_history", "token": "unrecorded", "redis": "unlocked"}
    for lock, rule in rules.items():
        assert rule in runs[lock]["violations"], runs[lock]
    reason_in_first_line = runs["token"]["why"][:40]  # a longer reason may be broken into lines
    assert f"token: {reason_in_first_line}" in output
    assert_nothing_is_left(clone)
