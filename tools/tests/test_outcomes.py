"""The load test's table of outcomes (OUTCOMES) fits the errors and the metrics of the shop.

An outcome is the word for what a purchase led to, such as `sold` or `busy`. These tests are not in
loadtest/, which imports nothing of the shop.
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

#: Outcomes that only the shop's metrics count: no answer has them.
METRICS_ONLY = {"replayed", "gone"}


ErrorClass: TypeAlias = type[errors.ShopError]


def find_error_classes(error: ErrorClass = errors.ShopError) -> Iterator[ErrorClass]:
    """Yield an error of the shop and its subclasses, all of which are in shop/errors.py."""
    yield error
    for subclass in error.__subclasses__():
        if subclass.__module__ == errors.__name__:
            yield from find_error_classes(subclass)


def test_every_outcome_of_the_shop_has_a_row() -> None:
    """If this fails, add the outcome to OUTCOMES in loadtest/judge/outcomes.py."""
    assert {error.outcome for error in find_error_classes()} | {"sold"} == set(OUTCOMES)


def test_metrics_count_every_outcome() -> None:
    """The shop's metrics count the outcomes in OUTCOMES of shop/ops/metrics.py.

    That module is parsed, because importing it registers its metrics for every other test.
    """
    tree = ast.parse((ROOT / "shop/ops/metrics.py").read_text())
    (counted_outcomes,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OUTCOMES"
    ]
    assert set(counted_outcomes) == set(OUTCOMES) | METRICS_ONLY


def test_buyers_retry_after_each_error_that_asks_for_it() -> None:
    """Buyers of the load test retry after each RetryLater, and after WaitingRoomFull.

    They do not retry after Throttled: the pause that it asks for may be longer than the run.
    """
    outcomes = {
        error.outcome for error in find_error_classes() if issubclass(error, errors.RetryLater)
    }
    outcomes.remove(errors.RetryLater.outcome)  # the shop raises only its subclasses
    assert outcomes | {errors.WaitingRoomFull.outcome} == RETRIED_OUTCOMES


def test_event_type_of_an_outcome_says_whether_a_unit_was_sold() -> None:
    """`ok`: sold, `fail`: not sold, `info`: unknown, because the commit was cut off."""
    outcomes_by_type = {"fail": set(OUTCOMES) - {"sold", "unknown"}, "ok": {"sold"}}
    for expected_type, outcomes in outcomes_by_type.items():
        assert {name for name in OUTCOMES if get_event_type(name) == expected_type} == outcomes
    assert get_event_type(errors.CommitUnknown.outcome) == "info"
    assert get_event_type("an outcome without a row") == "fail"


def test_each_set_has_the_outcomes_with_its_property() -> None:
    """The sets are computed from the table OUTCOMES. Here they are written out.

    So if a row of the table changes, this test shows which sets change.
    """
    assert {"sold", "sold_out"} == FINAL_OUTCOMES
    assert set(OUTCOMES) - {"unavailable", "error", "unknown"} == CORRECT_OUTCOMES
    assert {"sold", "sold_out", "closed", "busy", "lost"} == BEGUN_OUTCOMES
    assert {"busy", "lost", "full", "unavailable"} == RETRIED_REFUSALS
    assert not FINAL_OUTCOMES & RETRIED_OUTCOMES


def test_remedies_are_for_outcomes_that_leave_a_buyer_unserved() -> None:
    """REMEDIES has an advice for each outcome that is not a final answer, with two exceptions.

    After `error` the verdict shows the shop's message instead, and after `lost` nothing.
    """
    assert set(REMEDIES) | {"error", "lost"} == set(OUTCOMES) - FINAL_OUTCOMES
    assert set(FOREIGN_SHOP_REMEDIES) <= set(REMEDIES)
