"""The load test's table of outcomes (OUTCOMES) agrees with the errors and the metrics of the shop.

An outcome is the result of a purchase as a word, such as `sold` or `busy`. Each error of the shop
has one. These tests are not in loadtest/, because loadtest/ imports nothing from the shop.
"""

import ast
from collections.abc import Iterator
from typing import TypeAlias

from loadtest.judge.outcomes import (
    BEGUN_OUTCOMES,
    CORRECT_OUTCOMES,
    FINAL_OUTCOMES,
    OUTCOMES,
    RETRIED_OUTCOMES,
    RETRIED_REFUSALS,
    get_event_type,
)
from loadtest.judge.verdict import FOREIGN_SHOP_REMEDIES, REMEDIES
from servers.embedded import ROOT
from shop import errors

#: Outcomes that the shop's metrics count, and that the shop never sends as a response.
METRICS_ONLY = {"replayed", "gone"}


ErrorClass: TypeAlias = type[errors.ShopError]


def find_error_classes(error: ErrorClass = errors.ShopError) -> Iterator[ErrorClass]:
    """Yield a class of error and its subclasses in shop/errors.py, at all levels."""
    yield error
    for subclass in error.__subclasses__():
        if subclass.__module__ == errors.__name__:
            yield from find_error_classes(subclass)


def test_every_outcome_of_the_shop_has_a_row() -> None:
    """OUTCOMES has a row for `sold` and for the outcome of each error, and no others.

    If this test fails, correct OUTCOMES in loadtest/judge/outcomes.py.
    """
    assert {error.outcome for error in find_error_classes()} | {"sold"} == set(OUTCOMES)


def test_metrics_count_every_outcome() -> None:
    """OUTCOMES in shop/ops/metrics.py has every outcome of the load test's table.

    That module is parsed and not imported, because an import would register its metrics for all
    other tests.
    """
    tree = ast.parse((ROOT / "shop/ops/metrics.py").read_text())
    (counted_outcomes,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OUTCOMES"
    ]
    assert set(counted_outcomes) == set(OUTCOMES) | METRICS_ONLY


def test_buyers_retry_after_each_error_that_asks_for_it() -> None:
    """Buyers of the load test retry after each subclass of RetryLater, and after WaitingRoomFull.

    They do not retry after Throttled, because the pause that this error asks for may be longer than
    the load test.
    """
    outcomes = {
        error.outcome for error in find_error_classes() if issubclass(error, errors.RetryLater)
    }
    outcomes.remove(errors.RetryLater.outcome)  # the shop raises only its subclasses
    assert outcomes | {errors.WaitingRoomFull.outcome} == RETRIED_OUTCOMES


def test_event_type_of_an_outcome_says_whether_a_unit_was_sold() -> None:
    """The type of an event in the history is `ok`, `fail` or `info`.

    `ok` means that a unit was sold, `fail` that none was sold, and `info` that this is unknown,
    because the commit was cut off.
    """
    outcomes_by_type = {"fail": set(OUTCOMES) - {"sold", "unknown"}, "ok": {"sold"}}
    for expected_type, outcomes in outcomes_by_type.items():
        assert {name for name in OUTCOMES if get_event_type(name) == expected_type} == outcomes
    assert get_event_type(errors.CommitUnknown.outcome) == "info"
    assert get_event_type("an outcome without a row") == "fail"


def test_each_set_of_outcomes_has_the_right_outcomes() -> None:
    """The load test computes these sets from the columns of OUTCOMES. Here they are written out.

    If a row of the table changes, this test shows which sets change with it.
    """
    assert {"sold", "sold_out"} == FINAL_OUTCOMES
    assert set(OUTCOMES) - {"unavailable", "error", "unknown"} == CORRECT_OUTCOMES
    assert {"sold", "sold_out", "closed", "busy", "lost"} == BEGUN_OUTCOMES
    assert {"busy", "lost", "full", "unavailable"} == RETRIED_REFUSALS
    assert not FINAL_OUTCOMES & RETRIED_OUTCOMES


def test_remedies_are_for_outcomes_that_leave_a_buyer_unserved() -> None:
    """REMEDIES says what to do if the last outcome of some buyers is not final.

    There is no remedy for `error`, because the shop's message is shown instead, and none for
    `lost`. FOREIGN_SHOP_REMEDIES has the remedies for a shop other than this project's.
    """
    assert set(REMEDIES) | {"error", "lost"} == set(OUTCOMES) - FINAL_OUTCOMES
    assert set(FOREIGN_SHOP_REMEDIES) <= set(REMEDIES)
