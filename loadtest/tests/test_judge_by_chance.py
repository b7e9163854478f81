"""Random sales: a correct one breaks no rule."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadtest.tests.correct_shop import CorrectShop
from loadtest.tests.happenings import Happenings

#: Threads left behind by earlier tests may use `random` too, which Hypothesis takes for ours.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")

quick = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=list(HealthCheck),  # they measure the machine, not the judge
)


def shops(*, pauses: bool = False) -> st.SearchStrategy[CorrectShop]:
    return st.builds(
        CorrectShop,
        random=st.builds(Random, st.integers(0, 2**32)),
        stock=st.integers(1, 6),
        buyers=st.integers(1, 12),
        pauses=st.just(pauses),
    )


def expected(sale: Happenings) -> str:
    """Nobody bought, or somebody was left without a final answer: unknown. Else exact."""
    served = all(reply.outcome in {"sold", "sold_out"} for reply in sale.last.values())
    return "exact" if sale.orders and served else "unknown"


@quick
@given(shops())
def test_a_correct_shop_breaks_no_rule(shop: CorrectShop) -> None:
    sale = shop.run()
    judged = sale.judged()
    assert judged.findings == ()
    assert judged.verdict == expected(sale)
    acknowledged = {key for key, last in sale.last.items() if last.outcome == "sold"}
    assert judged.recovered == {
        order["key"]: order["order"] for order in sale.orders if order["key"] not in acknowledged
    }


@quick
@given(shops(pauses=True))
def test_a_fence_keeps_a_sale_exact_though_holds_overlap(shop: CorrectShop) -> None:
    sale = shop.run()
    judged = sale.judged()
    assert set(judged.violations) <= {"overlap"}
    assert judged.verdict == expected(sale)


def test_holders_that_were_paused_do_overlap() -> None:
    """Otherwise the test above would show nothing."""
    found = [CorrectShop(Random(n), 6, 12, pauses=True).run().judged() for n in range(20)]
    assert sum("overlap" in judged.violations for judged in found) > 10
