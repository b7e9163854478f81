"""The load test describes the strategies itself (loadtest/expected.py), and checks the shop's list.

GET /strategies of the shop lists its strategies. If an entry differs from expected.py, the strategy
has a complaint, and its runs are not as expected: a shop must not choose the rules by which it is
judged.
"""

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
from loadtest.stack.strategies import describe_strategies, list_complaints

#: The environment variables of nodes that have all servers except ZooKeeper.
ENVIRONMENT = {"REDLOCK_URLS": "redis://127.0.0.1:1"}


def make_shop_listing(*names: str, **changes: Any) -> list[dict[str, Any]]:
    """Return what GET /strategies of a shop with these strategies returns.

    The entries are those of expected.py. The shop has every server except ZooKeeper.

    changes  fields that differ from expected.py in every entry
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


def describe_and_check(*names: str, listing: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the load test's descriptions of these strategies, with complaints about the listing.

    listing  what the shop's GET /strategies returns
    """
    return describe_strategies(names, listing, ENVIRONMENT, missing={})


def test_traits_have_a_row_for_every_strategy() -> None:
    """TRAITS has the properties of each strategy, such as whether it renews its lock."""
    assert list(TRAITS) == list(EXPECTED)


def test_listing_without_errors_has_no_complaint() -> None:
    """The shop lists all strategies, each with the properties in expected.py."""
    strategies = describe_and_check(*EXPECTED, listing=make_shop_listing(*EXPECTED))
    assert list_complaints(strategies) == []
    unavailable = [strategy["name"] for strategy in strategies if not strategy["available"]]
    assert unavailable == ["zookeeper"]


def test_strategy_that_is_not_listed_is_not_run_and_not_as_expected() -> None:
    """The shop lists only `redis`, but the user wants to run `row-lock`."""
    [strategy] = describe_and_check("row-lock", listing=make_shop_listing("redis"))
    run = make_unavailable_run(strategy)
    assert (run["verdict"], run["as_expected"]) == ("not_run", False)
    assert run["why"] == "GET /strategies does not list row-lock"


def test_strategy_that_is_wrongly_listed_as_unavailable_is_run() -> None:
    """The shop lists `conditional` as unavailable, but that strategy needs only the database.

    So the strategy is run. Because of the wrong entry its run is not as expected.
    """
    [strategy] = describe_and_check(
        "conditional", listing=make_shop_listing("conditional", available=False)
    )
    assert strategy["available"]
    assert strategy["complaint"] == (
        "GET /strategies describes conditional wrongly: available is False, not True"
    )
    run = add_complaint(cast(Run, {"verdict": "exact", "as_expected": True}), strategy)
    assert not run["as_expected"]
    assert run["findings"] == [strategy["complaint"]]


def test_strategy_whose_server_is_missing_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict `not_run` is as expected outside CI: not every machine has ZooKeeper."""
    monkeypatch.delenv("CI", raising=False)
    [strategy] = describe_and_check("zookeeper", listing=make_shop_listing("zookeeper"))
    assert make_unavailable_run(strategy)["as_expected"]
    assert make_unavailable_run(strategy)["why"].startswith("ZOOKEEPER_HOSTS is not set")


@pytest.mark.parametrize("change", [{"renewed": False}, {"renewed": None}, {"fenced": False}])
def test_wrong_property_is_a_complaint_and_is_not_used(change: dict[str, Any]) -> None:
    """`redis` renews its lock and has a fence. The shop's entry denies or omits one of the two."""
    [strategy] = describe_and_check("redis", listing=make_shop_listing("redis", **change))
    assert strategy["renewed"]
    assert strategy["fenced"]
    assert strategy["complaint"]


def test_missing_property_is_a_complaint() -> None:
    """The shop's entry of `redis` does not say whether it renews its lock."""
    listing = make_shop_listing("redis")
    del listing[0]["renewed"]
    [strategy] = describe_and_check("redis", listing=listing)
    assert strategy["renewed"]
    assert (
        strategy["complaint"]
        == "GET /strategies describes redis wrongly: renewed is None, not True"
    )


def test_wrong_listing_is_found_under_a_fault(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each error in the shop's list makes the cell of its strategy unexpected.

    A cell is the result of one strategy under one fault. The shop does not list `row-lock`, lists
    `conditional` as unavailable, and does not say whether `redis` renews its lock. The entry of
    `token` is right.
    """
    list_strategies = Shop.strategies

    def list_wrongly(shop: Shop) -> list[Any]:
        """Replace Shop.strategies(): return the shop's list with three errors."""
        listing: list[Any] = list_strategies(shop)
        entries = [entry for entry in listing if entry["name"] != "row-lock"]
        for entry in entries:
            if entry["name"] == "conditional":
                entry["available"] = False
            if entry["name"] == "redis":
                del entry["renewed"]
        return entries

    names = ("token", "redis", "row-lock", "conditional")
    assert list_complaints(testbed.strategies(names)) == []
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
    """The shop lists a strategy `unheard-of`, which loadtest/expected.py does not have."""
    list_strategies = Shop.strategies

    def list_one_more(shop: Shop) -> list[Any]:
        """Replace Shop.strategies(): return the shop's list and the unknown strategy."""
        return [*list_strategies(shop), {"name": "unheard-of"}]

    monkeypatch.setattr(Shop, "strategies", list_one_more)
    with pytest.raises(StackError, match="lists unheard-of, without an expected verdict"):
        testbed.strategies()


def test_cell_of_a_strategy_without_its_server_is_as_expected(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell is the result of one strategy under one fault. ZooKeeper is not installed here.

    In CI the cell of `zookeeper` is not as expected, because no server may be missing there.
    """
    [strategy] = describe_and_check("zookeeper", listing=make_shop_listing("zookeeper"))
    for ci in ("", "true"):
        monkeypatch.setenv("CI", ci)
        [cell] = run_fault(PauseFault(testbed), [strategy])
        assert (cell["verdict"], cell["as_expected"]) == ("not_run", not ci)
        assert cell["missing"] == "ZOOKEEPER_HOSTS is not set, and no such server is installed"
