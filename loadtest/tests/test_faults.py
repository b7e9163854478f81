"""Real faults for strategies with different verdicts, and one rush of chaos."""

import io
import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from rich.console import Console

from loadtest.commands import chaos
from loadtest.commands import faults as command
from loadtest.expected import EXPECTED, SURVIVABLE_VERDICTS, TABLE, VICTIM_POINTS, parse_table
from loadtest.faults import Fault, chaos_rush, fault_report
from loadtest.faults.cells import SLOW_BUYER_MESSAGE
from loadtest.faults.kinds.db_kill import DbKillFault
from loadtest.faults.kinds.late_release import LateReleaseFault
from loadtest.faults.kinds.pause import PauseFault
from loadtest.faults.kinds.slow import SlowFault
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import TTL_SECONDS, Testbed
from loadtest.faults.trial import Trial
from loadtest.judge.evidence import EVIDENCE
from loadtest.judge.run import Cell, Judged, Run
from loadtest.stack.client import Shop, ShopUnreachable
from loadtest.stack.stack import ROOT
from loadtest.stack.strategies import complaints_of

#: A sitecustomize.py: every Python with its folder in PYTHONPATH has a repaired SetpxDelLock, and a
#: RedisLock without the thread that renews.
CHANGED = """\
import django
from locks import watchdog

setup = django.setup
watchdog.Watchdog.add = lambda watchdog, renewal: None

def changed(**options):
    setup(**options)
    from shop.strategies import setpx_del, token
    setpx_del.SetpxDelLock.unlock = token.TokenLock.unlock

django.setup = changed
"""
#: A sitecustomize.py by which the thread of TokenWatchdogLock renews nothing.
WITHOUT_RENEWAL = """\
import django

setup = django.setup

def changed(**options):
    setup(**options)
    from shop.strategies.token_watchdog import TokenWatchdogLock
    TokenWatchdogLock.renew = lambda lock, lease: True

django.setup = changed
"""


def cells(testbed: Testbed, fault: type[Fault], *locks: str) -> dict[str, Cell]:
    return {cell["lock"]: cell for cell in run_fault(fault(testbed), testbed.strategies(locks))}


@contextmanager
def changed_nodes(testbed: Testbed, folder: Path, sitecustomize: str) -> Iterator[None]:
    """Restart both nodes with this sitecustomize.py, and without it after the block."""
    (folder / "sitecustomize.py").write_text(sitecustomize)
    try:
        for node in range(2):
            testbed.restart(node, PYTHONPATH=f"{folder}:{ROOT}")
        yield
    finally:
        for node in range(2):
            testbed.restart(node)


@pytest.fixture
def rivals_slower_than_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    resume_rivals = Trial.resume_rivals

    def resume_rivals_late(trial: Trial) -> None:
        time.sleep(TTL_SECONDS)
        resume_rivals(trial)

    monkeypatch.setattr(Trial, "resume_rivals", resume_rivals_late)


@pytest.mark.usefixtures("rivals_slower_than_ttl")
def test_rival_slower_than_its_ttl_leaves_a_right_cell_inconclusive(testbed: Testbed) -> None:
    cells_by_lock = cells(testbed, LateReleaseFault, "token", "setpx-del", "redis")
    token = cells_by_lock["token"]
    assert (token["verdict"], token["missing"], token["wrong"]) == (
        "unknown",
        SLOW_BUYER_MESSAGE,
        [],
    )
    assert cells_by_lock["setpx-del"]["verdict"] == "oversold"
    assert cells_by_lock["redis"]["verdict"] == "exact"


@pytest.mark.usefixtures("rivals_slower_than_ttl")
def test_slow_rival_does_not_excuse_a_lock_that_should_be_renewed(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Under `pause` token-watchdog may oversell, but not while its process runs."""
    with changed_nodes(testbed, tmp_path, WITHOUT_RENEWAL):
        cell = cells(testbed, LateReleaseFault, "token-watchdog")["token-watchdog"]
    assert (cell["verdict"], cell["missing"]) == ("oversold", "")
    assert not cell["as_expected"]


def test_paused_holder_of_token_oversells_and_one_of_redis_does_not(testbed: Testbed) -> None:
    cells_by_lock = cells(testbed, PauseFault, "token", "redis", "row-lock")
    assert {lock: cell["verdict"] for lock, cell in cells_by_lock.items()} == {
        "token": "oversold",
        "redis": "exact",
        "row-lock": "exact",
    }
    assert all(cell["as_expected"] for cell in cells_by_lock.values())
    assert set(cells_by_lock["token"]["violations"]) == {"lost_update", "overlap", "stale_write"}
    timeline = (
        r"victim \(node A\) has the lock",
        "victim reads a stock of 10",
        "SIGSTOP",
        r"rival-1 \(node B\) has the lock: two holders",
        "victim sells order",
        "rival-1 sells .*: the decrement of order [0-9]+ is lost",
    )
    story = "\n".join(cells_by_lock["token"]["story"])
    assert re.search(".*".join(timeline), story, re.DOTALL), story
    assert "state T" in cells_by_lock["token"]["evidence"]


def test_removed_or_fenced_flaw_is_reported(testbed: Testbed, tmp_path: Path) -> None:
    with changed_nodes(testbed, tmp_path, CHANGED):
        repaired = cells(testbed, LateReleaseFault, "setpx-del")["setpx-del"]
        never_renewed = cells(testbed, SlowFault, "redis")["redis"]
    assert (repaired["verdict"], repaired["as_expected"]) == ("exact", False)
    assert fault_report.describe_unexpected_cell(repaired) == (
        "setpx-del under late-release: exact, expected oversold"
    )
    assert (never_renewed["verdict"], never_renewed["as_expected"]) == ("exact", False)
    assert never_renewed["wrong"] == ["two holders at a time, and the fault took no lock away"]


@pytest.mark.parametrize("steps", [["resume"], ["fire", "heal"], ["act_on_servers"], ["clean_up"]])
def test_failing_step_makes_the_cells_unknown(testbed: Testbed, steps: list[str]) -> None:
    """The reason is the first failure, not the failures that follow from it."""
    with pytest.MonkeyPatch.context() as patch:
        for step in steps:

            def breaks(*_: object, step: str = step) -> None:
                raise OSError(f"{step} broke")

            patch.setattr(SlowFault, step, breaks)
        cell = cells(testbed, SlowFault, "redis")["redis"]
    assert (cell["verdict"], cell["as_expected"]) == ("unknown", False)
    assert cell["missing"] == f"OSError: {steps[0]} broke"
    cell = cells(testbed, DbKillFault, "redis")["redis"]
    assert cell["missing"] == ""
    assert cell["as_expected"]


@pytest.mark.parametrize(
    ("key", "is_everybodys"), [("lock:redis:spare:{product}", False), ("leak:7f3a", True)]
)
def test_key_that_is_left_under_a_fault_is_found(
    testbed: Testbed, key: str, is_everybodys: bool
) -> None:
    """A key that names no product may be of any trial. The next fault is not blamed for it."""

    class LeavesKey(SlowFault):
        def resume(self, trial: Trial) -> None:
            super().resume(trial)
            if trial.lock == "redis":
                self.run_redis_command("SET", key.format(product=trial.product), 1)

    cells_by_lock = cells(testbed, LeavesKey, "redis", "row-lock")
    cell = cells_by_lock["redis"]
    assert (cell["verdict"], cell["as_expected"]) == ("unknown", False)
    assert cell["violations"] == ["leaked_key"]
    assert cell["findings"][0].startswith(key.partition("{")[0])
    assert cell["wrong"][0].startswith("keys were left on the lock servers: ")
    assert cells_by_lock["row-lock"]["as_expected"] == (not is_everybodys)
    assert command.exit_code([cell]) == 1
    after = cells(testbed, SlowFault, "redis")["redis"]
    assert after["as_expected"], (after["missing"], after["wrong"])


def test_table_has_a_row_for_every_strategy_and_agrees_with_the_shop(testbed: Testbed) -> None:
    strategies = testbed.shop().strategies()
    assert [strategy["name"] for strategy in strategies] == list(EXPECTED)
    assert complaints_of(testbed.strategies()) == []
    assert set(VICTIM_POINTS) <= set(EXPECTED) == set(EVIDENCE)
    for facts in strategies:
        row = EXPECTED[facts["name"]]
        assert facts["expected"] == {"rush": row["rush"]}
        takes_a_lock = facts["backend"] in {"redis", "redlock", "zookeeper", "process"}
        assert EVIDENCE[facts["name"]].locked == (takes_a_lock and not facts["reserves"])
        is_sound = not {"oversold", "deadlock"} & SURVIVABLE_VERDICTS[facts["name"]]
        assert facts["sound"] == is_sound, facts["name"]
        assert set(VICTIM_POINTS.get(facts["name"], {})) <= set(row)


def test_duplicate_row_of_the_table_is_refused() -> None:
    *_, last = TABLE.splitlines()
    with pytest.raises(ValueError, match=r"^the table has two rows for reserve"):
        parse_table(f"{TABLE}{last}\n")


def test_faults_write_their_cells_as_runs_of_summary_json(results: Path) -> None:
    latest = results / "latest"
    locks = ["redis", "setnx-timestamp"]
    assert command.run(Console(quiet=True), faults=["clock"], locks=locks) == 0
    summary = json.loads((latest / "summary.json").read_text())
    assert set(summary) >= {"started", "machine", "nodes", "workers", "threads", "runs"}
    assert {run["lock"]: run["verdict"] for run in summary["runs"]} == {
        "redis": "exact",
        "setnx-timestamp": "oversold",
    }
    of_a_cell = Cell.__annotations__.keys() - Run.__annotations__.keys()
    for run in summary["runs"]:
        assert set(run) >= {*Judged.__annotations__, *of_a_cell, "lock", "fault", "as_expected"}
    assert (latest / "faults.md").read_text().startswith("# Faults")
    assert (latest / "report.html").stat().st_size > 100_000
    assert (latest / "history.jsonl").stat().st_size > 0


def fail_every_other_call(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception
) -> None:
    """Raise the error in the first call of a method, in the third, and so on."""
    method = getattr(owner, name)
    calls = itertools.count(1)

    def failing(*args: Any, **options: Any) -> Any:
        if next(calls) % 2:
            raise error
        return method(*args, **options)

    monkeypatch.setattr(owner, name, failing)


def test_rush_of_chaos_waits_for_servers_that_do_not_answer_yet(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits before its sale, before it looks for leftover locks, and before the judge reads."""
    monkeypatch.setattr(chaos_rush, "ARRIVAL_SECONDS", 0.05)
    monkeypatch.setattr(chaos_rush, "DISTURBANCE_START_SECONDS", 0.0)
    silent_shop = ShopUnreachable("GET /sales/1: 503")
    fail_every_other_call(monkeypatch, Trial, "open", silent_shop)
    fail_every_other_call(monkeypatch, Trial, "find_lock_keys", redis.ConnectionError("refused"))
    fail_every_other_call(monkeypatch, Shop, "settled_sale", silent_shop)
    fail_every_other_call(monkeypatch, Shop, "orders", silent_shop)
    nothing = chaos_rush.Disturbance("nothing", lambda *_: "seen")
    rush = chaos_rush.ChaosRush(1, seed=5, disturbances=[nothing], hold_ms=0)
    chaos_rush.run_chaos_rush(testbed, rush, testbed.strategies(("redis",)))
    (cell,) = rush.cells
    assert (cell["verdict"], cell["as_expected"]) == ("exact", True), cell["missing"]


def test_chaos_stops_at_a_violation_with_the_seed_and_its_history(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    monkeypatch.setattr(chaos_rush, "ARRIVAL_SECONDS", 0.05)
    monkeypatch.setattr(chaos_rush, "DISTURBANCE_START_SECONDS", 0.05)
    monkeypatch.setattr(chaos, "UNBROKEN", ("none",))
    monkeypatch.setattr(chaos, "CANARIES", ())
    printed = io.StringIO()
    assert chaos.run(Console(file=printed, width=120), minutes=1, seed=5) == 1
    assert "none: oversold" in printed.getvalue()
    assert "1 violations; 0 rushes failed; seed 5" in printed.getvalue()
    assert json.loads((results / "latest" / "summary.json").read_text())["seed"] == 5
    assert (results / "latest" / "history.jsonl").stat().st_size > 0
