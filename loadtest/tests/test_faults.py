"""Real faults under strategies with different verdicts, and one rush of the command `chaos`.

Under a fault, each strategy has a trial: a sale with a buyer whom the fault hits, the victim, and
other buyers, the rivals. A cell is the judged sale of a trial.
"""

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
from loadtest.faults.chaos_rush import ChaosFault
from loadtest.faults.kinds.crash import CrashFault
from loadtest.faults.kinds.db_kill import DbKillFault
from loadtest.faults.kinds.late_release import LateReleaseFault
from loadtest.faults.kinds.pause import PauseFault
from loadtest.faults.kinds.shutdown import ShutdownFault
from loadtest.faults.kinds.slow import SlowFault
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import ANSWER_TIMEOUT_SECONDS, TTL_SECONDS, Testbed, wait_for
from loadtest.faults.trial import Trial
from loadtest.judge.mechanism import MECHANISMS
from loadtest.judge.run import Cell, Judged, Run
from loadtest.stack.client import Shop, ShopUnreachable
from loadtest.stack.stack import ROOT
from loadtest.stack.strategies import list_complaints

# Each text is the content of a sitecustomize.py. A node runs this file at its start if the file's
# folder is in PYTHONPATH. The modules of the shop can be imported, and changed, only after
# django.setup().

#: Repairs the lock of `setpx-del`, and switches off the renewal of all locks of `redis`.
REPAIRED_SETPX_DEL_AND_UNRENEWED_REDIS = """\
import django
from locks import watchdog

setup = django.setup
watchdog.Watchdog.add = lambda self, renewal: None

def set_up_and_change(**options):
    setup(**options)
    from shop.strategies import setpx_del, token
    setpx_del.SetpxDelLock.unlock = token.TokenLock.unlock

django.setup = set_up_and_change
"""
#: Switches off the renewal of the locks of `token-watchdog`.
UNRENEWED_TOKEN_WATCHDOG = """\
import django

setup = django.setup

def set_up_and_change(**options):
    setup(**options)
    from shop.strategies.token_watchdog import TokenWatchdogLock
    TokenWatchdogLock.renew = lambda lock, lease: True

django.setup = set_up_and_change
"""


def inject_fault_class(testbed: Testbed, fault_class: type[Fault], *locks: str) -> dict[str, Cell]:
    """Make a fault under these strategies. Return each strategy's cell, its judged sale."""
    cells = run_fault(fault_class(testbed), testbed.strategies(locks))
    return {cell["lock"]: cell for cell in cells}


@contextmanager
def change_nodes(testbed: Testbed, folder: Path, sitecustomize: str) -> Iterator[None]:
    """Restart both nodes with changed locks. After the block, restart them without the change.

    sitecustomize  the source that changes the locks; a node runs it first when it starts
    """
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
    """Keep the rivals stopped one ttl longer than usual, so that the first rival's lock expires.

    The rivals would be as late on a machine that is too slow.
    """
    resume_rivals = Trial.resume_rivals

    def resume_rivals_late(trial: Trial) -> None:
        time.sleep(TTL_SECONDS)
        resume_rivals(trial)

    monkeypatch.setattr(Trial, "resume_rivals", resume_rivals_late)


@pytest.mark.usefixtures("rivals_slower_than_ttl")
def test_oversell_because_of_a_slow_rival_is_inconclusive(testbed: Testbed) -> None:
    """`token` oversells because a slow rival keeps the lock past its ttl, not because of the fault.

    The slow rival does not change the verdicts on the other two strategies: `setpx-del` oversells
    because of the fault, and `redis` is exact.
    """
    cells_by_lock = inject_fault_class(testbed, LateReleaseFault, "token", "setpx-del", "redis")
    token_cell = cells_by_lock["token"]
    assert token_cell["verdict"] == "unknown"
    assert token_cell["missing"] == f"{SLOW_BUYER_MESSAGE}; its sale was oversold"
    assert token_cell["wrong"] == []
    assert cells_by_lock["setpx-del"]["verdict"] == "oversold"
    assert cells_by_lock["redis"]["verdict"] == "exact"


class LateReleaseOfAnyBuyer(LateReleaseFault):
    """A late release that may hit the rivals, too, like the faults of the command `chaos`."""

    hits_any_buyer = True


@pytest.mark.usefixtures("rivals_slower_than_ttl")
def test_slow_rival_is_not_excused_if_the_fault_may_have_hit_it(testbed: Testbed) -> None:
    """A slow rival keeps the lock of `token` past its ttl, and the strategy oversells.

    This fault may be the reason why the rival was slow, so the verdict is `oversold` and not
    `unknown`. The faults of the command `chaos` may hit any buyer, too.
    """
    cell = inject_fault_class(testbed, LateReleaseOfAnyBuyer, "token")["token"]
    reason_if_unknown = cell["missing"]
    assert (cell["verdict"], reason_if_unknown) == ("oversold", "")
    assert ChaosFault.hits_any_buyer


@pytest.mark.usefixtures("rivals_slower_than_ttl")
def test_slow_rival_is_not_excused_if_its_lock_should_be_renewed(
    testbed: Testbed, tmp_path: Path
) -> None:
    """The watchdog of `token-watchdog` is switched off, and the strategy oversells.

    With the watchdog, a slow rival's lock would not have expired. So the verdict is `oversold`, not
    `unknown`.
    """
    with change_nodes(testbed, tmp_path, UNRENEWED_TOKEN_WATCHDOG):
        cell = inject_fault_class(testbed, LateReleaseFault, "token-watchdog")["token-watchdog"]
    assert (cell["verdict"], cell["missing"]) == ("oversold", "")
    assert not cell["as_expected"]


def test_pause_of_the_holder_breaks_token_but_not_redis(testbed: Testbed) -> None:
    """The victim is paused past the ttl of its lock, and a rival gets the lock meanwhile.

    Under `token` both sell from the same stock. The story of that sale has the events below.
    """
    cells_by_lock = inject_fault_class(testbed, PauseFault, "token", "redis", "row-lock")
    assert {lock: cell["verdict"] for lock, cell in cells_by_lock.items()} == {
        "token": "oversold",
        "redis": "exact",
        "row-lock": "exact",
    }
    assert all(cell["as_expected"] for cell in cells_by_lock.values())
    assert set(cells_by_lock["token"]["violations"]) == {"lost_update", "overlap", "stale_write"}
    expected_events = (
        r"victim \(node A\) has the lock",
        "victim reads a stock of 10",
        "SIGSTOP",
        r"rival-1 \(node B\) has the lock: two holders",
        "victim sells order",
        "rival-1 sells .*: the decrement of order [0-9]+ is lost",
    )
    story = "\n".join(cells_by_lock["token"]["story"])
    assert re.search(".*".join(expected_events), story, re.DOTALL), story
    assert "state T" in cells_by_lock["token"]["evidence"]  # T: stopped by a signal


def test_unexpected_exact_sales_are_reported(testbed: Testbed, tmp_path: Path) -> None:
    """The code of two locks is changed. Both sales are then exact, and both are unexpected.

    `setpx-del` is expected to oversell, but its flaw is repaired here. The lock of `redis` is not
    renewed here, so two buyers hold it at once, which is unexpected. Its fence prevents oversells.
    """
    with change_nodes(testbed, tmp_path, REPAIRED_SETPX_DEL_AND_UNRENEWED_REDIS):
        repaired_cell = inject_fault_class(testbed, LateReleaseFault, "setpx-del")["setpx-del"]
        unrenewed_cell = inject_fault_class(testbed, SlowFault, "redis")["redis"]
    assert (repaired_cell["verdict"], repaired_cell["as_expected"]) == ("exact", False)
    assert fault_report.describe_unexpected_cell(repaired_cell) == (
        "setpx-del under late-release: exact, expected oversold"
    )
    assert (unrenewed_cell["verdict"], unrenewed_cell["as_expected"]) == ("exact", False)
    assert unrenewed_cell["wrong"] == [
        "two buyers held the lock at the same time, although the fault takes no lock away"
    ]


def test_late_crash_does_not_break_setnx_timestamp(testbed: Testbed) -> None:
    """The crash is two ttls later than usual. The verdicts are the usual ones.

    Under `setnx-timestamp` a rival computes the time at which its lease will end, and is stopped
    just before it writes this time into the lock. A rival that is stopped for longer than a ttl
    would write a time that has passed, and another rival could take the lock over, too. So the
    rivals must not begin before the crash, however late it is.
    """

    class LateCrash(CrashFault):
        """A crash that is two ttls later than usual."""

        def fire(self) -> None:
            time.sleep(2 * TTL_SECONDS)
            super().fire()

    cells_by_lock = inject_fault_class(testbed, LateCrash, "setnx-timestamp", "setnx-timestamp-del")
    assert cells_by_lock["setnx-timestamp"]["verdict"] == "exact"
    assert cells_by_lock["setnx-timestamp-del"]["verdict"] == "oversold"


def test_buyer_who_waits_too_long_at_a_shutdown_is_answered_busy(testbed: Testbed) -> None:
    """When node A gets SIGTERM, the victim of the fault has the lock. Another buyer waits for it.

    The victim keeps the lock until the waiting buyer is answered `busy`. The sale is still exact.
    """

    class SlowShutdown(ShutdownFault):
        """A shutdown during which the victim goes on only after the waiting buyer was answered."""

        def resume(self, trial: Trial) -> None:
            wait_for(lambda: trial.waiting_buyer.first_outcome, ANSWER_TIMEOUT_SECONDS)
            super().resume(trial)
            assert trial.waiting_buyer.first_outcome == "busy"

    cell = inject_fault_class(testbed, SlowShutdown, "token")["token"]
    assert (cell["verdict"], cell["missing"], cell["wrong"]) == ("exact", "", [])


@pytest.mark.parametrize(
    "steps", [["resume"], ["fire", "heal"], ["act_while_buyers_run"], ["clean_up"]]
)
def test_failing_step_makes_the_cells_unknown(testbed: Testbed, steps: list[str]) -> None:
    """A cell is the judged sale of a strategy under a fault. Its verdict is `unknown` here.

    Each method of the fault in `steps` raises an error. The first error is the reason for the
    verdict. The next fault on the same testbed works.
    """
    with pytest.MonkeyPatch.context() as patch:
        for step in steps:

            def fail(*_: object, step: str = step) -> None:
                raise OSError(f"{step} failed")

            patch.setattr(SlowFault, step, fail)
        cell = inject_fault_class(testbed, SlowFault, "redis")["redis"]
    assert (cell["verdict"], cell["as_expected"]) == ("unknown", False)
    assert cell["missing"] == f"OSError: {steps[0]} failed"
    next_cell = inject_fault_class(testbed, DbKillFault, "redis")["redis"]
    assert next_cell["missing"] == ""
    assert next_cell["as_expected"]


@pytest.mark.parametrize(
    ("key", "has_product_name"), [("lock:redis:spare:{product}", True), ("leak:7f3a", False)]
)
def test_key_that_is_left_under_a_fault_is_found(
    testbed: Testbed, key: str, has_product_name: bool
) -> None:
    """A key is left on the lock server in the sale of `redis`, and the cell of `redis` reports it.

    A cell is the judged sale of a strategy under a fault. If the key does not contain the product
    of a sale, it may be from any strategy. So the cell of `row-lock` reports it too. The cell of
    the next fault does not report the key.
    """

    class LeavesKey(SlowFault):
        """A fault that leaves a key on the lock server in the sale of `redis`."""

        def resume(self, trial: Trial) -> None:
            """Let the victim of this sale go on, and set the `key` of the test."""
            super().resume(trial)
            if trial.strategy_name == "redis":
                self.run_redis_command("SET", key.format(product=trial.product), 1)

    cells_by_lock = inject_fault_class(testbed, LeavesKey, "redis", "row-lock")
    cell = cells_by_lock["redis"]
    assert (cell["verdict"], cell["as_expected"]) == ("unknown", False)
    assert cell["violations"] == ["leaked_key"]
    key_without_product = key.removesuffix("{product}")
    assert cell["findings"][0].startswith(key_without_product)
    assert cell["wrong"][0].startswith("keys were left on the lock servers: ")
    assert cells_by_lock["row-lock"]["as_expected"] == has_product_name
    assert command.choose_exit_code([cell]) == 1
    next_cell = inject_fault_class(testbed, SlowFault, "redis")["redis"]
    assert next_cell["as_expected"], (next_cell["missing"], next_cell["wrong"])


def test_table_of_verdicts_agrees_with_the_shop(testbed: Testbed) -> None:
    """EXPECTED, the load test's table of verdicts, has the strategies in the order of the shop.

    The table and the shop expect the same verdict on a rush without a fault. The load test and the
    shop also agree on which strategies take a lock, and which are sound.
    """
    strategies = testbed.shop().strategies()
    assert [strategy["name"] for strategy in strategies] == list(EXPECTED)
    assert list_complaints(testbed.strategies()) == []
    assert set(MECHANISMS) == set(EXPECTED)
    assert set(VICTIM_POINTS) <= set(EXPECTED)
    for strategy in strategies:
        name = strategy["name"]
        row = EXPECTED[name]
        assert strategy["expected"] == {"rush": row["rush"]}
        has_lock_backend = strategy["backend"] in {"redis", "redlock", "zookeeper", "process"}
        takes_a_lock = has_lock_backend and not strategy["reserves"]
        assert MECHANISMS[name].locked == takes_a_lock, name
        is_sound = SURVIVABLE_VERDICTS[name].isdisjoint({"oversold", "deadlock"})
        assert strategy["sound"] == is_sound, name
        faults_with_stop_point = set(VICTIM_POINTS.get(name, {}))  # where the victim is stopped
        assert faults_with_stop_point <= set(row), f"{name} should have a verdict for each fault"


def test_duplicate_row_of_the_table_of_verdicts_is_refused() -> None:
    """TABLE is the text from which EXPECTED is parsed. Its last row is that of `reserve`."""
    last_row = TABLE.splitlines()[-1]
    with pytest.raises(ValueError, match=r"^the table has two rows for reserve"):
        parse_table(f"{TABLE}{last_row}\n")


def test_command_faults_writes_a_summary_a_table_and_a_report(results: Path) -> None:
    """The command makes a real fault, `clock`, under two strategies."""
    latest = results / "latest"
    locks = ["redis", "setnx-timestamp"]
    assert command.run(Console(quiet=True), faults=["clock"], locks=locks) == 0
    summary = json.loads((latest / "summary.json").read_text())
    assert set(summary) >= {"started", "machine", "nodes", "workers", "threads", "runs"}
    assert {run["lock"]: run["verdict"] for run in summary["runs"]} == {
        "redis": "exact",
        "setnx-timestamp": "oversold",
    }
    cell_fields = Cell.__annotations__.keys() - Run.__annotations__.keys()
    for run in summary["runs"]:
        assert set(run) >= {*Judged.__annotations__, *cell_fields, "lock", "fault", "as_expected"}
    assert (latest / "faults.md").read_text().startswith("# Faults")
    assert (latest / "report.html").stat().st_size > 100_000, "it should contain the chart library"
    assert (latest / "history.jsonl").stat().st_size > 0


def fail_every_other_call(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception
) -> None:
    """Replace a method by one whose first, third, fifth call, and so on, raises the error."""
    method = getattr(owner, name)
    calls = itertools.count(1)

    def fail_or_call(*args: Any, **options: Any) -> Any:
        if next(calls) % 2:
            raise error
        return method(*args, **options)

    monkeypatch.setattr(owner, name, fail_or_call)


def test_rush_of_chaos_waits_for_servers_that_do_not_answer_yet(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other call to the shop or to Redis fails, and the rush repeats it.

    The calls open sales, look for locks that were not released, and read the orders to be judged.
    """
    monkeypatch.setattr(chaos_rush, "ARRIVAL_SECONDS", 0.05)
    monkeypatch.setattr(chaos_rush, "DISTURBANCE_START_SECONDS", 0.0)
    shop_error = ShopUnreachable("GET /sales/1: 503")
    fail_every_other_call(monkeypatch, Trial, "open", shop_error)
    fail_every_other_call(monkeypatch, Trial, "find_lock_keys", redis.ConnectionError("refused"))
    fail_every_other_call(monkeypatch, Shop, "wait_for_settled_sale", shop_error)
    fail_every_other_call(monkeypatch, Shop, "orders", shop_error)
    harmless = chaos_rush.Disturbance("harmless", inject=lambda testbed, rng: "the evidence")
    rush = chaos_rush.ChaosRush(number=1, seed=5, disturbances=[harmless], hold_ms=0)
    chaos_rush.run_chaos_rush(testbed, rush, testbed.strategies(("redis",)))
    (cell,) = rush.cells
    assert (cell["verdict"], cell["as_expected"]) == ("exact", True), cell["missing"]


def test_chaos_stops_at_a_violation_and_records_seed_and_history(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    """The only strategy is `none`, which oversells at once. Here chaos expects it to be sound.

    UNBROKEN_STRATEGIES are sound, so they must not break. CANARIES are the flawed strategies.
    """
    monkeypatch.setattr(chaos_rush, "ARRIVAL_SECONDS", 0.05)
    monkeypatch.setattr(chaos_rush, "DISTURBANCE_START_SECONDS", 0.05)
    monkeypatch.setattr(chaos, "UNBROKEN_STRATEGIES", ("none",))
    monkeypatch.setattr(chaos, "CANARIES", ())
    output = io.StringIO()
    assert chaos.run(Console(file=output, width=120), minutes=1, seed=5) == 1
    assert "none: oversold" in output.getvalue()
    assert "1 violations; 0 rushes failed; seed 5" in output.getvalue()
    assert json.loads((results / "latest" / "summary.json").read_text())["seed"] == 5
    assert (results / "latest" / "history.jsonl").stat().st_size > 0
