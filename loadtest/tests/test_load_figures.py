"""The figures of a load run, from purchases that are made up."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from loadtest.load import cpu
from loadtest.load.figures import Measured, Sale, Window, by_second, figures, jain
from loadtest.load.products import Chooser, names, zipf


def sale(at: float, takes: float = 0.1, outcome: str = "sold", **more: Any) -> Sale:
    given = {"product": 0, "client": 0, "number": 0, "intended": at, "sent": at, **more}
    return Sale(answered=at + takes, outcome=outcome, order=1, **given)


def measured(*sales: Sale, end: float = 10.0, by: str = "time", **more: Any) -> Measured:
    return Measured(sales, Window(0.0, end, by), **more)


def of(found: Measured, *, clients: int = 1, is_open: bool = False) -> dict[str, Any]:
    return figures(found, clients=clients, is_open=is_open)


def test_jain_is_1_for_equals_and_1_nth_where_one_has_all() -> None:
    assert jain([5, 5, 5, 5]) == 1.0
    assert jain([20, 0, 0, 0]) == 0.25
    assert jain([1, 3]) == 0.8
    assert jain([0, 0]) is None


def test_a_client_who_got_nothing_counts_for_the_fairness() -> None:
    found = measured(*(sale(1, client=0, number=n) for n in range(4)))
    assert of(found, clients=4)["jain"] == 0.25
    assert of(found, is_open=True)["jain"] is None


def test_zipf_gives_the_kth_product_one_kth_to_the_power_of_the_skew() -> None:
    shares = zipf(100, 1.1)
    assert sum(shares) == pytest.approx(1)
    assert shares[0] / shares[9] == pytest.approx(10**1.1)
    assert zipf(4, 0) == [0.25] * 4


def test_products_are_drawn_by_their_shares_and_the_same_ones_with_the_same_seed() -> None:
    shares = zipf(10, 1.0)
    one, other = (Chooser(shares, Random("1/7")) for _ in range(2))
    drawn = [one() for _ in range(20_000)]
    assert [other() for _ in range(20_000)] == drawn
    for place, share in enumerate(shares):
        assert drawn.count(place) / len(drawn) == pytest.approx(share, rel=0.15)
    assert [Chooser(shares, Random("1/8"))() for _ in range(30)] != drawn[:30]
    assert names(2) == ["load-001", "load-002"]


def test_what_was_sold_in_the_warm_up_or_after_the_end_is_not_counted() -> None:
    found = of(measured(sale(-0.5), sale(1), sale(9), sale(9.95), sale(11)))
    assert found["sold"] == 2, "9.95 was answered after the end"
    assert found["sold_per_s"] == 0.2
    slow = of(measured(sale(-0.5, 9), sale(1), sale(9.95, 0.3)))
    assert slow["answer_ms"]["max"] == pytest.approx(300), "of the buyers who arrived in it"


def test_the_rate_of_a_sale_that_ran_out_is_over_the_time_until_its_last_unit() -> None:
    sales = [sale(n / 100, 0.01) for n in range(200)]
    found = of(measured(*sales, end=2.0, by="stock"))
    assert (found["ended_by"], found["measured_s"]) == ("stock", 2.0)
    assert found["sold_per_s"] == 100, "and not over the 10 s that were asked for"


def test_the_time_to_answer_counts_from_the_intended_arrival() -> None:
    late = [sale(1, 0.5, sent=1.4), *(sale(2) for _ in range(9))]
    found = of(measured(*late))
    assert found["answer_ms"] == {"p50": 100, "p90": 100, "p99": 500, "max": 500}
    assert (found["late_ms"], found["p99_to_p50"]) == (400, 5.0)


def test_errors_are_counted_by_outcome_and_wait_in_no_percentile() -> None:
    again = sale(1, 3, earlier=["busy", "unavailable"])
    found = of(measured(again, sale(2, 9, "error"), sale(3, 0.1, "sold_out")))
    answers = {name: count for name, count in found["answers"].items() if count}
    assert answers == {"sold": 1, "sold_out": 1, "error": 1, "busy": 1, "unavailable": 1}
    assert (found["errors"], found["answer_ms"]["max"]) == (3, 3000)


def test_a_second_has_what_was_sold_in_it_and_how_long_those_waited_who_came_in_it() -> None:
    sales = [sale(0.1), sale(0.2, 1.0), sale(2.5), sale(2.6, 5, "error")]
    assert by_second(sales, Window(0, 10)) == [[0, 1, 100, 1000], [2, 1, 100, 100]]


def test_processor_time_is_by_sold_unit_and_unknown_is_not_0() -> None:
    cpus = os.cpu_count() or 1
    spent = {"nodes": 0.5, "PostgreSQL": None, "machine": 1.0}
    found = of(measured(sale(1), sale(2), cpu=spent))
    assert found["cpu_ms_per_sale"] == {"nodes": 250, "PostgreSQL": None}
    assert found["others_busy"] is None
    known = of(measured(sale(1), cpu={"nodes": 1.0, "machine": 1.0 + 5 * cpus}))
    assert known["others_busy"] == 0.5
    assert of(measured(cpu=spent))["cpu_ms_per_sale"]["nodes"] is None, "nothing was sold"


def test_nothing_is_known_of_no_process_and_of_other_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cpu.seconds([]) is None
    assert cpu.seconds([2**22 + 1]) is None, "there is no such process"
    monkeypatch.setattr(cpu, "IS_KNOWN", False)
    assert cpu.seconds([os.getpid()]) is None
    assert cpu.busiest(os.getpid(), {}) == (None, {})
    assert cpu.of_machine() is None


@pytest.mark.skipif(not cpu.IS_KNOWN, reason="processor time is read on Linux alone")
def test_the_time_of_a_child_that_ended_is_not_lost() -> None:
    before = cpu.seconds([os.getpid()])
    assert before is not None
    child = os.fork()
    if not child:
        end = os.times().user + 0.2
        while os.times().user < end:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    after = cpu.seconds([os.getpid()])
    assert after is not None
    assert after - before >= 0.2
