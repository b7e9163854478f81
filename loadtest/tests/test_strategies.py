"""The judge uses the project's own description of a strategy, not that of the judged shop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import pytest

from loadtest.commands.rushes import add_complaint, make_unavailable_run
from loadtest.expected import EXPECTED, TRAITS
from loadtest.faults.kinds.pause import PauseFault
from loadtest.faults.kinds.slow import SlowFault
from loadtest.faults.runner import run_fault
from loadtest.faults.testbed import Testbed
from loadtest.judge.run import Run
from loadtest.stack.client import Shop
from loadtest.stack.stack import StackError
from loadtest.stack.strategies import complaints_of, describe_strategies

#: Variables of nodes that have Redlock's servers, and no ZooKeeper.
ENVIRONMENT = {"REDLOCK_URLS": "redis://127.0.0.1:1"}


def make_listing(*names: str, **changes: Any) -> list[dict[str, Any]]:
    """Return the list of these strategies that GET /strategies of an honest shop returns.

    The shop has every server except ZooKeeper.

    changes  fields to change in every entry of the list
    """
    return [
        {
            "name": name,
            "expected": {"rush": EXPECTED[name]["rush"]},
            **asdict(TRAITS[name]),
            "available": TRAITS[name].needs in ("", *ENVIRONMENT),
            **changes,
        }
        for name in names
    ]


def describe(*names: str, listing: Sequence[dict[str, Any]]) -> list[Any]:
    """Return what the load test knows of these strategies of a shop that lists them in this way."""
    return describe_strategies(names, listing, ENVIRONMENT, missing={})


def test_traits_have_a_row_for_every_strategy() -> None:
    """A trait says, for example, whether a strategy renews its lock."""
    assert list(TRAITS) == list(EXPECTED)


def test_honest_listing_has_no_complaint() -> None:
    strategies = describe(*EXPECTED, listing=make_listing(*EXPECTED))
    assert complaints_of(strategies) == []
    unavailable = [strategy["name"] for strategy in strategies if not strategy["available"]]
    assert unavailable == ["zookeeper"]


def test_strategy_that_is_left_out_is_not_run_and_not_as_expected() -> None:
    """The shop lists only `redis`, and `row-lock` is wanted."""
    [strategy] = describe("row-lock", listing=make_listing("redis"))
    run = make_unavailable_run(strategy)
    assert (run["verdict"], run["as_expected"]) == ("not_run", False)
    assert run["why"] == "GET /strategies does not list row-lock"


def test_unavailable_strategy_that_needs_no_setting_is_tried() -> None:
    """A shop says that `conditional` is unavailable, which needs only the database.

    The strategy is run all the same, and its run is not as expected.
    """
    [strategy] = describe("conditional", listing=make_listing("conditional", available=False))
    assert strategy["available"]
    assert strategy["complaint"] == (
        "GET /strategies describes conditional wrongly: available is False, not True"
    )
    run = add_complaint(cast(Run, {"verdict": "exact", "as_expected": True}), strategy)
    assert not run["as_expected"]
    assert run["findings"] == [strategy["complaint"]]


def test_strategy_whose_server_is_missing_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside CI the run is as expected all the same: not every machine has ZooKeeper."""
    monkeypatch.delenv("CI", raising=False)
    [strategy] = describe("zookeeper", listing=make_listing("zookeeper"))
    assert make_unavailable_run(strategy)["as_expected"]
    assert make_unavailable_run(strategy)["why"].startswith("ZOOKEEPER_HOSTS is not set")


@pytest.mark.parametrize("change", [{"renewed": False}, {"renewed": None}, {"fenced": False}])
def test_wrong_trait_is_a_complaint_and_is_not_used(change: dict[str, Any]) -> None:
    """`redis` renews its lock and has a fence. The shop denies one of the two."""
    [strategy] = describe("redis", listing=make_listing("redis", **change))
    assert strategy["renewed"]
    assert strategy["fenced"]
    assert strategy["complaint"]


def test_missing_trait_is_a_complaint() -> None:
    listing = make_listing("redis")
    del listing[0]["renewed"]
    [strategy] = describe("redis", listing=listing)
    assert strategy["renewed"]
    assert (
        strategy["complaint"]
        == "GET /strategies describes redis wrongly: renewed is None, not True"
    )


def test_wrong_listing_is_found_under_a_fault(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GET /strategies omits `row-lock` and a trait of `redis`, and calls `conditional` unavailable.

    Each of the three makes its cell, the result of the strategy under the fault, unexpected.
    """
    list_strategies = Shop.strategies

    def list_wrongly(shop: Shop) -> list[Any]:
        listing: list[Any] = list_strategies(shop)
        entries = [entry for entry in listing if entry["name"] != "row-lock"]
        for entry in entries:
            if entry["name"] == "conditional":
                entry["available"] = False
            if entry["name"] == "redis":
                del entry["renewed"]
        return entries

    names = ("token", "redis", "row-lock", "conditional")
    assert complaints_of(testbed.strategies(names)) == []
    monkeypatch.setattr(Shop, "strategies", list_wrongly)
    strategies = testbed.strategies(names)
    cells = {cell["lock"]: cell for cell in run_fault(SlowFault(testbed), strategies)}
    verdicts = {name: (cell["verdict"], cell["as_expected"]) for name, cell in cells.items()}
    assert verdicts == {
        "token": ("oversold", True),
        "redis": ("exact", False),
        "row-lock": ("not_run", False),
        "conditional": ("exact", False),
    }
    assert cells["redis"]["wrong"] == [
        "GET /strategies describes redis wrongly: renewed is None, not True"
    ]
    assert cells["row-lock"]["missing"] == "GET /strategies does not list row-lock"


def test_strategy_without_expected_verdicts_is_refused(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shop lists a strategy that loadtest/expected.py does not have."""
    list_strategies = Shop.strategies

    def list_another(shop: Shop) -> list[Any]:
        return [*list_strategies(shop), {"name": "another"}]

    monkeypatch.setattr(Shop, "strategies", list_another)
    with pytest.raises(StackError, match="lists another, without an expected verdict"):
        testbed.strategies()


def test_unavailable_cell_without_a_complaint_is_as_expected(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell is the result of a strategy under a fault. This strategy lacks its server, ZooKeeper.

    In CI its cell is not as expected, because no server may be missing there.
    """
    [strategy] = describe("zookeeper", listing=make_listing("zookeeper"))
    for ci in ("", "true"):
        monkeypatch.setenv("CI", ci)
        [cell] = run_fault(PauseFault(testbed), [strategy])
        assert (cell["verdict"], cell["as_expected"]) == ("not_run", not ci)
        assert cell["missing"] == "ZOOKEEPER_HOSTS is not set, and no such server is installed"
