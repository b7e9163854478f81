"""The recordings of the site are complete, and the moves of two strategies are reproduced.

The recordings are the moves of two buyers under each strategy, and the results of the faults. A
turn order, such as `AABBAB`, is one of the 20 orders in which two buyers can make three moves each.
The code in the README is tested here, too.
"""

import gzip
import json
import os
import re
import subprocess
import sys

import pytest

from loadtest.expected import EXPECTED
from servers.embedded import ROOT
from shop.models import Product
from testing import Run, interleave
from tools.site.pages import OVERSOLD_CLASS, TURN_ORDERS, find_outcome, find_whole_schedule
from tools.site.recorder import recording
from tools.site.worlds import Moves, list_beginnings

README = (ROOT / "README.md").read_text()
#: A strategy without a lock, and a strategy with a lock. test_live.py tests the other strategies,
#: which takes longer.
QUICK_STRATEGIES = ("none", "redis")
#: The variables with the addresses of the servers that all tests share. A recording starts its own
#: servers, because two recordings in one database would close each other's sales.
SHARED_SERVERS = ("DATABASE_URL", "REDIS_URL")
#: The least number of strategies of which the faults must be recorded.
MIN_STRATEGIES = 28


def oversells_in(moves: Moves, turn_order: str) -> bool:
    """Return whether two orders for one unit are the outcome of this order of the turns."""
    return find_outcome(moves, turn_order).css_class == OVERSOLD_CLASS


def test_without_a_lock_18_of_20_turn_orders_sell_the_unit_twice() -> None:
    """In the two other orders, one buyer ends its purchase before the other begins."""
    moves = recording.read_recorded_moves()["none"]
    correct_orders = [order for order in TURN_ORDERS if not oversells_in(moves, order)]
    assert len(TURN_ORDERS) == 20
    assert correct_orders == ["AAABBB", "BBBAAA"]


def test_both_purchases_end_in_every_recorded_turn_order() -> None:
    moves_by_strategy = recording.read_recorded_moves()
    # Under two strategies a purchase does not have three moves: `reserve` is a script in Redis, and
    # `autocommit` has no COMMIT.
    not_recorded = set(recording.describe_strategies()) - set(moves_by_strategy)
    assert not_recorded == {"reserve", "autocommit"}
    for strategy, moves in moves_by_strategy.items():
        for turn_order in TURN_ORDERS:
            buyers_with_outcome = {
                buyer
                for beginning in list_beginnings(find_whole_schedule(moves, turn_order))
                for buyer, kind, *_ in moves[beginning]["did"]
                if kind == "ends"
            }
            assert buyers_with_outcome == {"A", "B"}, (strategy, turn_order)


def test_two_buyers_oversell_under_two_strategies_only() -> None:
    """In a rush of many buyers, `process` oversells, too: it is a lock in one process.

    In the recording it does not oversell, because both buyers are in the same process.
    """
    overselling = {
        strategy
        for strategy, moves in recording.read_recorded_moves().items()
        if any(oversells_in(moves, turn_order) for turn_order in TURN_ORDERS)
    }
    assert overselling == {"none", "redis-in-transaction"}


def test_every_expected_cell_is_recorded_with_the_expected_verdict() -> None:
    """A cell is a strategy under a fault. EXPECTED has the expected verdict of each cell."""
    recorded_faults = json.loads(gzip.decompress(recording.FAULTS_FILE.read_bytes()))
    cells = {(run["lock"], run["fault"]) for run in recorded_faults["runs"] if run["as_expected"]}
    strategies = {strategy for strategy, _ in cells}
    assert len(strategies) >= MIN_STRATEGIES
    expected_cells = {
        (strategy, fault)
        for strategy in strategies
        for fault in EXPECTED[strategy]
        if fault != "rush-one-process"  # part of `make matrix`, but without a column in the report
    }
    assert expected_cells - cells == set()


def test_code_of_a_strategy_is_shown_without_imports_and_registration() -> None:
    code = recording.describe_strategies()["none"]["code"]
    assert code.startswith('"""FLAW: two buyers read the same stock')
    assert "def buy(attempt: Attempt) -> Receipt:" in code
    assert "import" not in code
    assert "STRATEGY" not in code


def test_recorded_moves_are_reproduced_by_the_shop() -> None:
    """Under two strategies, each turn of a new recording is equal to the saved one.

    test_live.py tests the other strategies.
    """
    assert_moves_are_reproduced(QUICK_STRATEGIES)


def assert_moves_are_reproduced(strategies: tuple[str, ...]) -> None:
    """Play every schedule under these strategies again; fail if a turn differs from the recording.

    The command prints the strategies whose moves differ.
    """
    command = [sys.executable, "-m", "tools.site.recorder.recording", "compare", *strategies]
    environment = {name: value for name, value in os.environ.items() if name not in SHARED_SERVERS}
    process = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert process.stdout == "differing from the recording: none\n", process.stderr[-2000:]


def test_strategy_whose_moves_differ_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new recording of `none` that lacks one event of the turn `AB` differs from the saved one.

    No schedule is played: record_schedules() is replaced by a function that returns the moves.
    """
    saved_moves = recording.read_recorded_moves()["none"]
    monkeypatch.setattr(recording, "record_schedules", lambda *_: [("none", saved_moves)])
    assert recording.find_differing_strategies(["none"]) == []
    changed_moves = json.loads(json.dumps(saved_moves))
    changed_moves["AB"]["did"].pop()
    monkeypatch.setattr(recording, "record_schedules", lambda *_: [("none", changed_moves)])
    assert recording.find_differing_strategies(["none"]) == ["none"]


def test_command_faults_without_folders_prints_the_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert recording.main(["faults"]) == 2
    assert "faults FOLDER ..." in capsys.readouterr().err


@pytest.mark.django_db(transaction=True)
def test_readme_code_loses_an_update() -> None:
    """Two buyers run the README's snippet in every order of their steps. There are 100 units.

    After two orders 98 units must be left. If 99 are left, an update was lost.
    """
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

    class SoldOut(Exception):
        pass

    def buy() -> None:
        exec(snippet, {"Product": Product, "SoldOut": SoldOut})

    def reset_stock() -> None:
        Product.objects.update_or_create(name="apple", defaults={"amount": 100})

    amounts_left: dict[str, int] = {}

    def record_amount_left(run: Run) -> None:
        amounts_left[run.schedule] = Product.objects.get(name="apple").amount

    interleave(buy, buy, before=reset_stock, check=record_amount_left)
    assert 99 in amounts_left.values(), "no order of the steps lost an update"
    assert 98 in amounts_left.values(), "no order of the steps was without a lost update"
