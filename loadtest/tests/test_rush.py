"""The judgement of a rush, how it reads the orders, and the figures of its requests."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loadtest.judge.intervals import Request
from loadtest.judge.run import Judged
from loadtest.rush.buyers_report import BuyersReport
from loadtest.rush.judge_rush import judge_rush
from loadtest.rush.plan import RushPlan
from loadtest.rush.rush import BuyerProcess, Rush
from loadtest.rush.timing import max_in_flight, measure_timing, percentiles
from loadtest.rush.verdict_text import verdict_text
from loadtest.stack.client import Shop
from loadtest.target.ours import OurShop


class SoldBoth(Shop):
    """A shop that sold its two units to the first buyers of a rush.

    Each order is on a page of its own. A client that read only the first page would miss orders.

    sold  how many buyers were sold a unit: two, or more
    """

    sold = 2
    unsettled: int | None = 0
    begins = "rush/"

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", token="")

    def settled_sale(self, number: int, *, seconds: float = 0.0) -> dict[str, Any]:
        return super().settled_sale(number, seconds=seconds)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if path == "/restock":
            return {"sale": 1}
        if path in ("/sales/0", "/sales/1"):
            return {"initial_stock": 2, "stock_left": 0, "unsettled": self.unsettled}
        n = int(path.rpartition("=")[2])
        order: dict[str, Any] = {"order": n, "key": f"{self.begins}buyer-{n}"}
        order |= {"fence": None, "stock_seen": max(1, 2 - n)}
        return {"orders": [order], "next": n + 1 if n + 1 < self.sold else None}


def make_rush(buyers: int, orders: int = 2) -> Rush:
    shop = SoldBoth()
    shop.sold = orders
    target = OurShop(shop, lock="none", product="apple")
    plan = RushPlan(hosts=[shop.url], buyers=buyers, stock=2)
    rush = Rush(plan, target, id="rush")
    rush.sale_counter.opening_stock = 2
    return rush


def rush_of_three(arrived: int = 3, orders: int = 2) -> Rush:
    """Return a rush of three buyers, of whom two asked and one was answered."""
    rush = make_rush(3, orders)
    first, second = (Request(f"rush/buyer-{number}", 1) for number in (0, 1))
    first.answer("sold", {"order": 0})
    rush.arrived, rush.requests = arrived, [first, second]
    return rush


def test_missing_buyers_are_counted_and_leave_no_verdict() -> None:
    run = rush_of_three(arrived=2).compute_run()
    assert (run["verdict"], run["never_arrived"], run["never_asked"]) == ("unknown", 1, 0)


@pytest.mark.parametrize(("orders", "verdict"), [(2, "unknown"), (3, "oversold")])
@pytest.mark.parametrize(
    "why", ["the rush was stopped", "worker 1 on host is gone, and with it the answers to 1 of 3"]
)
def test_incomplete_rush_is_unknown_unless_it_had_oversold(
    orders: int, verdict: str, why: str
) -> None:
    rush = rush_of_three(orders=orders)
    rush.released_at = 1.0
    if "stopped" in why:
        rush.stopped = True
    else:
        rush.record_loss(BuyerProcess("host_1", range(1, 3, 2)))
    run = rush.compute_run()
    assert run["verdict"] == verdict
    assert run["why"].startswith(why)


def test_order_with_only_a_buyers_name_is_a_strangers() -> None:
    rush = rush_of_three()
    assert isinstance(rush.target, OurShop)
    assert isinstance(rush.target.shop, SoldBoth)
    rush.target.shop.begins = ""
    run = rush.compute_run()
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_ack", "ghost_order"])


def test_unjudged_rush_names_its_sale_and_lock() -> None:
    rush = make_rush(2)
    rush.failure = "no answer"
    assert rush.conclude() == {
        "lock": "none",
        "sale": 0,
        "verdict": "unknown",
        "error": "no answer",
    }


def test_verdict_names_the_stock_only_of_a_shop_that_shows_it() -> None:
    run = rush_of_three(orders=3).compute_run()
    assert verdict_text(run).startswith(
        "OVERSOLD [none]: 3 orders for 2 units, 0 left on the shelf\n"
    )
    run["stock_left"] = None
    assert verdict_text(run).startswith("OVERSOLD [none]: 3 orders for 2 units\n")


def test_requested_stock_is_the_one_that_counts() -> None:
    """The shop opened the sale with two units, although three were requested."""
    rush = rush_of_three()
    rush.plan = replace(rush.plan, stock=3)
    run = rush.compute_run()
    assert (run["initial_stock"], run["violations"]) == (3, ["wrong_stock", "lost_update"])
    assert run["why"] == "the sale opened with 2 units, and 3 were asked for"


# --- a rush that others judge ---------------------------------------------------------------------


def unjudged_rush() -> Rush:
    """Return a rush of three whose plan does not judge it, so that its shop gets no request."""
    rush = rush_of_three()
    rush.plan = replace(rush.plan, judge=False)
    rush.target = OurShop(Shop("http://127.0.0.1:9", token=""), lock="none", product="apple")
    return rush


def test_report_is_the_same_after_json() -> None:
    rush = unjudged_rush()
    answer = json.loads(json.dumps(rush.conclude()))
    assert BuyersReport.from_json(answer) == rush.report()
    assert [request.outcome for request in rush.report().requests] == ["sold", "unknown"]


def test_unjudged_rush_that_failed_is_an_error() -> None:
    rush = unjudged_rush()
    rush.failure = "no answer"
    assert rush.conclude()["error"] == "no answer"


def judge(rush: Rush) -> dict[str, Any]:
    """Judge a rush by its report, as if its two units had been sold to the first two buyers."""
    report = rush.report()
    return judge_rush(
        rush.plan,
        report,
        events=report.events(),
        opening_stock=2,
        stock_left=0,
        orders=SoldBoth().orders(0),
        unsettled_promises=0,
        judging_scope={"judged": [], "not_judged": []},
    )


def test_rush_has_the_same_fields_wherever_it_is_judged() -> None:
    run = rush_of_three().compute_run()
    assert list(judge(unjudged_rush())) == list(run)
    assert run.keys() >= Judged.__annotations__.keys()


@pytest.mark.parametrize("verdict_on", [Rush.compute_run, judge])
def test_answer_without_its_order_is_found(verdict_on: Callable[[Rush], dict[str, Any]]) -> None:
    """The orders have the number, but must not complete the answers before these are judged."""
    rush = rush_of_three()
    rush.requests[0].order = None
    run = verdict_on(rush)
    assert run["violations"] == ["lost_ack"]
    assert run["findings"] == ["rush/buyer-0 was answered sold, without a number; it has order 0"]


def test_buyers_of_a_lost_process_had_arrived() -> None:
    rush = unjudged_rush()
    rush.arrived = 2
    assert judge(rush)["never_arrived"] == 1
    rush.lost = ["worker 1 is gone"]
    assert judge(rush)["never_arrived"] == 0


def test_restock_token_is_not_sent_to_the_buyers() -> None:
    rush = rush_of_three()
    rush.plan = replace(rush.plan, restock_token="secret")
    announcement = rush.open()
    assert "secret" not in json.dumps(announcement)
    assert RushPlan(**announcement["plan"]) == replace(rush.plan, restock_token="")


@pytest.mark.parametrize("fields", [{"hosts": []}, {"buyers": 0}, {"deadline_s": 60}])
def test_wrong_plan_is_refused_by_the_name_of_the_field(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises((TypeError, ValueError), match=name):
        RushPlan(**{"hosts": ["http://127.0.0.1:9"], **fields})


# --- promises -------------------------------------------------------------------------------------


@pytest.mark.parametrize("unsettled", [1, None])
def test_rush_with_unsettled_promises_has_no_verdict(unsettled: int | None) -> None:
    """The page and Locust's tab show this verdict, which does not use the nodes' records."""
    rush = rush_of_three()
    assert isinstance(rush.target, OurShop)
    assert isinstance(rush.target.shop, SoldBoth)
    rush.target.shop.unsettled = unsettled
    run = rush.compute_run()
    assert (run["verdict"], run["violations"]) == ("unknown", ["unsettled"])
    assert "promised orders are not written" in run["why"]


# --- figures --------------------------------------------------------------------------------------


#: Buyer a is refused and asks again, b and c are answered once, d never is. In nanoseconds.
ASKED = [
    Request("a", 10_000_000, 20_000_000, outcome="full"),
    Request("b", 25_000_000, 200_000_000),
    Request("c", 1_000_000, 30_000_000),
    Request("a", 400_000_000, 500_000_000, outcome="sold"),
    Request("d", 41_000_000),
]


def test_purchase_ends_with_its_last_answer_and_a_request_with_its_own() -> None:
    assert measure_timing(ASKED) == {
        "duration_s": 0.499,
        "buy_ms": {"p50": 175.0, "p95": 490.0, "p99": 490.0, "max": 490.0},
        "arrival_spread_ms": 40.0,
        "began_s": 0.001,
        "requests": {"p50": 29.0, "p99": 175.0, "max": 175.0},
        "in_flight": 2,
    }


def test_adjacent_requests_count_as_one_in_flight() -> None:
    assert max_in_flight([(1, 2), (2, 3)]) == 1
    assert max_in_flight([(1, 2)] * 3) == 3


def test_percentile_is_a_value_that_was_measured() -> None:
    figures = percentiles([float(n) for n in range(150, 0, -1)], 1, 50, 95, 99)
    assert figures == {"p1": 2.0, "p50": 75.0, "p95": 143.0, "p99": 149.0, "max": 150.0}


def test_figures_of_no_requests_are_zero() -> None:
    timing = measure_timing([])
    assert timing["duration_s"] == timing["began_s"] == timing["in_flight"] == 0
    assert timing["buy_ms"] == {"p50": 0, "p95": 0, "p99": 0, "max": 0}
