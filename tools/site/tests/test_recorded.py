"""The recorded moves and faults are complete, and the moves of two strategies are reproduced.

A turn order, such as `AABBAB`, is one of the 20 orders in which two buyers can make three moves
each. The code in the README is run, too.
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
from tools.site.pages import TURN_ORDERS, find_outcome, find_turns_made
from tools.site.recorder import recording

README = (ROOT / "README.md").read_text()
#: A strategy without a lock, and one with. test_live.py, which takes longer, has the others.
QUICK_STRATEGIES = ("none", "redis")
#: The variables with the servers of the test run. A recording starts its own servers, because two
#: recordings in one database would close each other's sales.
SHARED_SERVERS = ("DATABASE_URL", "REDIS_URL")


def test_without_a_lock_18_of_20_turn_orders_sell_the_unit_twice() -> None:
    moves = recording.read_recorded_moves()["none"]
    # "bad" is the CSS class of an outcome that oversells.
    oversold = [
        turn_order
        for turn_order in TURN_ORDERS
        if find_outcome(moves, turn_order).css_class == "bad"
    ]
    assert sorted(set(TURN_ORDERS) - set(oversold)) == ["AAABBB", "BBBAAA"]


def test_every_turn_order_of_every_strategy_comes_to_an_end() -> None:
    recorded = recording.read_recorded_moves()
    # A purchase under these two does not have three moves: `reserve` is a script in Redis, and
    # `autocommit` has no COMMIT.
    assert set(recording.describe_strategies()) - set(recorded) == {"reserve", "autocommit"}
    for strategy, moves in recorded.items():
        for turn_order in TURN_ORDERS:
            turns_made = find_turns_made(moves, turn_order)
            turns = [moves[turns_made[:length]] for length in range(1, len(turns_made) + 1)]
            ended = {event[0] for turn in turns for event in turn["did"] if event[1] == "ends"}
            assert ended == {"A", "B"}, (strategy, turn_order)


def test_only_strategies_that_any_rush_breaks_sell_twice() -> None:
    overselling = {
        strategy
        for strategy, moves in recording.read_recorded_moves().items()
        if any(find_outcome(moves, turn_order).css_class == "bad" for turn_order in TURN_ORDERS)
    }
    # Any rush breaks `process`, a lock in one process, too. In the recording it is correct, because
    # there both buyers are in the same process.
    assert overselling == {"none", "redis-in-transaction"}


def test_every_cell_that_is_expected_is_recorded_and_was_as_expected() -> None:
    """A cell is a strategy under a fault. The recording has all of them with the right verdict."""
    data = json.loads(gzip.decompress(recording.FAULTS_FILE.read_bytes()))
    cells = {(run["lock"], run["fault"]) for run in data["runs"] if run["as_expected"]}
    locks = {lock for lock, _ in cells}
    assert len(locks) >= 28
    expected = {(lock, fault) for lock in locks for fault in EXPECTED[lock]}
    # The rush against one process is part of the matrix, and has no column in the report.
    assert {cell for cell in expected - cells if cell[1] != "rush-one-process"} == set()


def test_code_of_a_strategy_is_shown_without_imports_and_registration() -> None:
    code = recording.describe_strategies()["none"]["code"]
    assert code.startswith('"""FLAW: two buyers read the same stock')
    assert "def buy(attempt: Attempt) -> Receipt:" in code
    assert "import" not in code
    assert "STRATEGY" not in code


def test_recorded_moves_are_reproduced_by_the_shop() -> None:
    """test_live.py tests the other strategies."""
    assert_moves_are_reproduced(QUICK_STRATEGIES)


def assert_moves_are_reproduced(strategies: tuple[str, ...]) -> None:
    """Assert that the shop does the same as in the recording, under each of these strategies."""
    command = [sys.executable, "-m", "tools.site.recorder.recording", "compare", *strategies]
    environment = {name: value for name, value in os.environ.items() if name not in SHARED_SERVERS}
    process = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert process.stdout == "differing from the recording: none\n", process.stderr[-2000:]


def test_strategy_whose_moves_differ_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`none` is recorded twice: first as it is saved, then without an event of the turn `AB`."""
    recorded = recording.read_recorded_moves()
    monkeypatch.setattr(recording, "record_schedules", lambda *_: [("none", recorded["none"])])
    assert recording.find_differing_strategies(["none"]) == []
    with_a_missing_event = json.loads(json.dumps(recorded["none"]))
    with_a_missing_event["AB"]["did"].pop()
    monkeypatch.setattr(recording, "record_schedules", lambda *_: [("none", with_a_missing_event)])
    assert recording.find_differing_strategies(["none"]) == ["none"]


def test_faults_without_folders_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert recording.main(["faults"]) == 2
    assert "faults FOLDER ..." in capsys.readouterr().err


@pytest.mark.django_db(transaction=True)
def test_readme_code_loses_an_update() -> None:
    """Two buyers run the README's snippet in every order of their steps. There are 100 units."""
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

    class SoldOut(Exception):
        pass

    def buy() -> None:
        exec(snippet, {"Product": Product, "SoldOut": SoldOut})

    def reset_stock() -> None:
        Product.objects.update_or_create(name="apple", defaults={"amount": 100})

    amounts_left: dict[str, int] = {}

    def check(run: Run) -> None:
        amounts_left[run.schedule] = Product.objects.get(name="apple").amount

    interleave(buy, buy, before=reset_stock, check=check)
    assert 99 in amounts_left.values(), "no order of the steps lost an update"
    assert 98 in amounts_left.values(), "no order of the steps was without a lost update"
