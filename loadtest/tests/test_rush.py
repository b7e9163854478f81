"""The judgement of a rush, how it reads the orders, and the figures of its requests."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from loadtest.judge.intervals import Request
from loadtest.judge.run import Judged
from loadtest.rush.buyers_report import BuyersReport
from loadtest.rush.judge_rush import judge_rush
from loadtest.rush.messages import pack_request
from loadtest.rush.plan import RushPlan
from loadtest.rush.rush import BuyerProcess, Rush
from loadtest.rush.timing import compute_max_in_flight, compute_percentiles, measure_timing
from loadtest.rush.verdict_text import describe_run
from loadtest.stack.client import Shop
from loadtest.target import Answer, error, sold
from loadtest.target.ours import OurShop


class ShopOfTwoUnits(Shop):
    """A shop, without a server, that sold its two units to the first buyers of a rush.

    Each order has its own page. A client that read only the first page would miss orders.

    sold        the number of orders: 2, or more if the shop oversold
    unsettled   the number of promised orders that are not written; None if it is unknown
    key_prefix  the text before the buyer's name in the key of each order
    """

    sold = 2
    unsettled: int | None = 0
    key_prefix = "rush/"

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", token="")

    def wait_for_settled_sale(self, number: int, *, seconds: float = 0.0) -> dict[str, Any]:
        """Return the sale without waiting for unsettled orders, which stay unsettled here."""
        return super().wait_for_settled_sale(number, seconds=seconds)

    def _request_json(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        if path == "/restock":
            return {"sale": 1}
        if path in ("/sales/0", "/sales/1"):
            return {"initial_stock": 2, "stock_left": 0, "unsettled": self.unsettled}
        # Any other path is that of a page of orders, and ends with the number of its only order.
        number = int(path.rpartition("=")[2])
        order: dict[str, Any] = {
            "order": number,
            "key": f"{self.key_prefix}buyer-{number}",
            "fence": None,
            "stock_seen": max(1, 2 - number),
        }
        is_last = number + 1 >= self.sold
        return {"orders": [order], "next": None if is_last else number + 1}


def make_rush(buyers: int, orders: int = 2) -> Rush:
    """Return a rush for two units, without a lock, whose buyers have not arrived.

    orders  how many orders the shop will list
    """
    shop = ShopOfTwoUnits()
    shop.sold = orders
    target = OurShop(shop, lock="none", product="apple")
    plan = RushPlan(hosts=[shop.url], buyers=buyers, stock=2)
    rush = Rush(plan, target, id="rush")
    rush.sale_counter.opening_stock = 2
    return rush


def make_rush_of_three(arrived: int = 3, orders: int = 2) -> Rush:
    """Return a rush of three buyers for two units: buyer 0 is answered `sold`, buyer 1 not at all.

    Buyer 2 sends no request.

    arrived  how many buyers were ready to buy when the rush began
    orders   how many orders the shop lists
    """
    rush = make_rush(buyers=3, orders=orders)
    first, second = (Request(f"rush/buyer-{number}", 1) for number in (0, 1))
    first.receive_answer("sold", {"order": 0})
    rush.arrived = arrived
    rush.requests = [first, second]
    return rush


def test_missing_buyers_are_counted_and_leave_no_verdict() -> None:
    """One of three buyers was not ready to buy when the rush began."""
    run = make_rush_of_three(arrived=2).judge()
    assert (run["verdict"], run["never_arrived"], run["never_asked"]) == ("unknown", 1, 0)


@pytest.mark.parametrize(("orders", "verdict"), [(2, "unknown"), (3, "oversold")])
@pytest.mark.parametrize(
    ("is_stopped", "why"),
    [
        (True, "the rush was stopped"),
        (False, "worker 1 on host is gone, and with it the answers to 1 of 3"),
    ],
)
def test_incomplete_rush_is_unknown_unless_it_had_oversold(
    orders: int, verdict: str, is_stopped: bool, why: str
) -> None:
    """The rush was stopped, or the second of Locust's two workers, with buyer 1, was lost."""
    rush = make_rush_of_three(orders=orders)
    rush.released_at = 1.0
    if is_stopped:
        rush.stopped = True
    else:
        rush.record_lost_process(
            BuyerProcess("host_1", range(1, 3, 2))
        )  # its only buyer is buyer 1
    run = rush.judge()
    assert run["verdict"] == verdict
    assert run["why"].startswith(why)


def test_order_with_a_name_in_place_of_a_key_is_a_ghost() -> None:
    """The shop lists the orders of `buyer-0` and `buyer-1`, without the name of this rush.

    These names are the same in every rush, so such an order may come from an earlier rush.
    """
    rush = make_rush_of_three()
    assert isinstance(rush.target, OurShop)
    assert isinstance(rush.target.shop, ShopOfTwoUnits)
    rush.target.shop.key_prefix = ""
    run = rush.judge()
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_ack", "ghost_order"])


def test_failed_rush_names_its_sale_and_lock() -> None:
    """The result of a rush that failed has these fields, and no figures."""
    rush = make_rush(buyers=2)
    rush.failure = "no answer"
    assert rush.conclude() == {
        "lock": "none",
        "sale": 0,
        "verdict": "unknown",
        "error": "no answer",
    }


def test_verdict_names_the_stock_only_of_a_shop_that_shows_it() -> None:
    """The stock that is left is None if the shop does not show it."""
    run = make_rush_of_three(orders=3).judge()
    assert describe_run(run).startswith(
        "OVERSOLD [none]: 3 orders for 2 units, 0 left on the shelf\n"
    )
    run["stock_left"] = None
    assert describe_run(run).startswith("OVERSOLD [none]: 3 orders for 2 units\n")


def test_requested_stock_is_the_one_that_counts() -> None:
    """The shop opened the sale with two units, although three were requested."""
    rush = make_rush_of_three()
    rush.plan = replace(rush.plan, stock=3)
    run = rush.judge()
    assert (run["initial_stock"], run["violations"]) == (3, ["wrong_stock", "lost_update"])
    assert run["why"] == "the sale opened with 2 units, and 3 were asked for"


# --- a rush that others judge ---------------------------------------------------------------------


def make_unjudged_rush() -> Rush:
    """Return a rush of three buyers that another process judges.

    It must not send a request to its shop: no server listens at the shop's address.
    """
    rush = make_rush_of_three()
    rush.plan = replace(rush.plan, judge=False)
    rush.target = OurShop(Shop("http://127.0.0.1:9", token=""), lock="none", product="apple")
    return rush


def test_report_is_the_same_after_json() -> None:
    """The report of the buyers' answers goes to the process that judges the rush."""
    rush = make_unjudged_rush()
    report_fields = json.loads(json.dumps(rush.conclude()))
    assert BuyersReport.from_json(report_fields) == rush.make_report()
    assert [request.outcome for request in rush.make_report().requests] == ["sold", "unknown"]


def test_unjudged_rush_that_failed_is_an_error() -> None:
    rush = make_unjudged_rush()
    rush.failure = "no answer"
    assert rush.conclude()["error"] == "no answer"


def judge_report(rush: Rush) -> dict[str, Any]:
    """Judge a rush by its report, as another process does: the two units have two orders."""
    report = rush.make_report()
    return judge_rush(
        rush.plan,
        report,
        events=report.events(),
        opening_stock=2,
        stock_left=0,
        orders=ShopOfTwoUnits().orders(0),
        unsettled_promises=0,
        judging_scope={"judged": [], "not_judged": []},
    )


def test_rush_has_the_same_fields_wherever_it_is_judged() -> None:
    """A rush judges itself in judge(), or another process judges its report."""
    run = make_rush_of_three().judge()
    assert list(judge_report(make_unjudged_rush())) == list(run)
    assert run.keys() >= Judged.__annotations__.keys()


@pytest.mark.parametrize("judge", [Rush.judge, judge_report])
def test_answer_without_its_order_is_found(judge: Callable[[Rush], dict[str, Any]]) -> None:
    """Buyer 0's answer `sold` has no order number. The orders show it, but must not fill it in."""
    rush = make_rush_of_three()
    rush.requests[0].order = None
    run = judge(rush)
    assert run["violations"] == ["lost_ack"]
    assert run["findings"] == ["rush/buyer-0 was answered sold, without a number; it has order 0"]


def test_buyers_of_a_lost_process_count_as_arrived() -> None:
    """Two of three buyers have arrived. The third may have been in a worker that was lost."""
    rush = make_unjudged_rush()
    rush.arrived = 2
    assert judge_report(rush)["never_arrived"] == 1
    rush.lost = ["worker 1 is gone"]
    assert judge_report(rush)["never_arrived"] == 0


def test_restock_token_is_not_sent_to_the_buyers() -> None:
    """The announcement of a rush goes to Locust's workers, and has the plan without the token."""
    rush = make_rush_of_three()
    rush.plan = replace(rush.plan, restock_token="secret")
    announcement = rush.open()
    assert "secret" not in json.dumps(announcement)
    assert RushPlan(**announcement["plan"]) == replace(rush.plan, restock_token="")


@pytest.mark.parametrize(
    ("field", "wrong_value"),
    [("hosts", []), ("buyers", 0), ("deadline_s", 60)],  # there is only a field `deadline`
)
def test_wrong_plan_is_refused_by_the_name_of_the_field(field: str, wrong_value: Any) -> None:
    fields: dict[str, Any] = {"hosts": ["http://127.0.0.1:9"], field: wrong_value}
    with pytest.raises((TypeError, ValueError), match=field):
        RushPlan(**fields)


# --- promises -------------------------------------------------------------------------------------


@pytest.mark.parametrize("unsettled", [1, None])
def test_rush_with_unsettled_promises_has_no_verdict(unsettled: int | None) -> None:
    """The shop promised one order that is not written yet, or does not know how many."""
    rush = make_rush_of_three()
    assert isinstance(rush.target, OurShop)
    assert isinstance(rush.target.shop, ShopOfTwoUnits)
    rush.target.shop.unsettled = unsettled
    run = rush.judge()
    assert (run["verdict"], run["violations"]) == ("unknown", ["unsettled"])
    assert "promised orders are not written" in run["why"]


# --- figures --------------------------------------------------------------------------------------


#: Buyer a is refused and asks again, b and c are answered once, and d gets no answer. The times of
#: requests and answers are in nanoseconds.
REQUESTS = [
    Request("a", 10_000_000, 20_000_000, outcome="full"),
    Request("b", 25_000_000, 200_000_000),
    Request("c", 1_000_000, 30_000_000),
    Request("a", 400_000_000, 500_000_000, outcome="sold"),
    Request("d", 41_000_000),
]


def test_purchase_ends_with_its_last_answer_and_a_request_with_its_own() -> None:
    """The purchases of buyers a, b and c took 490, 175 and 29 ms.

    Buyer a sent two requests, which took 10 and 100 ms. Buyer d was not answered.
    """
    assert measure_timing(REQUESTS) == {
        "duration_s": 0.499,
        "buy_ms": {"p50": 175.0, "p95": 490.0, "p99": 490.0, "max": 490.0},
        "arrival_spread_ms": 40.0,
        "began_s": 0.001,
        "requests": {"p50": 29.0, "p99": 175.0, "max": 175.0},
        "in_flight": 2,
    }


def test_adjacent_requests_count_as_one_in_flight() -> None:
    """Each pair has the begin and the end of a request."""
    assert compute_max_in_flight([(1, 2), (2, 3)]) == 1
    assert compute_max_in_flight([(1, 2)] * 3) == 3


def test_percentile_is_a_value_that_was_measured() -> None:
    durations_ms = [float(number) for number in range(150, 0, -1)]
    figures = compute_percentiles(durations_ms, 1, 50, 95, 99)
    assert figures == {"p1": 2.0, "p50": 75.0, "p95": 143.0, "p99": 149.0, "max": 150.0}


def test_figures_of_no_requests_are_zero() -> None:
    timing = measure_timing([])
    assert timing["duration_s"] == timing["began_s"] == timing["in_flight"] == 0
    assert timing["buy_ms"] == {"p50": 0, "p95": 0, "p99": 0, "max": 0}


@pytest.mark.parametrize(
    ("answer", "order", "message"),
    [
        (sold(2**64), str(2**64), ""),
        (sold(2**64 - 1), 2**64 - 1, ""),
        (error("half a pair: \ud83d"), None, "half a pair: ?"),
    ],
    ids=["large number", "largest number of 64 bits", "half a surrogate pair"],
)
def test_worker_can_send_any_answer(answer: Answer, order: int | str | None, message: str) -> None:
    """If one answer could not be encoded, those to all other buyers of the worker would be lost.

    msgpack encodes neither larger numbers than 64 bits have, nor half a surrogate pair.
    """
    request = Request("rush/buyer-0", 1)
    answer.record(request)
    received = Request(*msgpack.loads(msgpack.dumps(pack_request(request))))
    assert (received.outcome, received.order, received.error) == (answer.outcome, order, message)
