"""The run of a rush: its verdict, the orders that it reads from the shop, and its figures.

A rush sends many buyers to one sale at the same moment. Locust's processes report the buyers'
requests and answers. The rush then judges them, or another process does so from the report.
"""

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

    The list of orders has one order on each page. A client that read only the first page would
    miss orders.

    order_count  the number of orders: 2, or more if the shop oversold
    unsettled    how many orders the shop has accepted and not written yet; None if it is unknown
    key_prefix   the text before the buyer's name in the key of each order
    """

    order_count = 2
    unsettled: int | None = 0
    key_prefix = "rush/"

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", token="")

    def wait_for_settled_sale(self, number: int, *, seconds: float = 0.0) -> dict[str, Any]:
        """Return the report of the sale. By default, do not wait for orders to be written."""
        return super().wait_for_settled_sale(number, seconds=seconds)

    def _request_json(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        if path == "/restock":
            return {"sale": 1}
        if path in ("/sales/0", "/sales/1"):
            return {"initial_stock": 2, "stock_left": 0, "unsettled": self.unsettled}
        # Any other path is that of a page of the list of orders. The path ends with the number of
        # the only order on the page.
        number = int(path.rpartition("=")[2])
        order: dict[str, Any] = {
            "order": number,
            "key": f"{self.key_prefix}buyer-{number}",
            "fence": None,
            "stock_seen": max(1, 2 - number),
        }
        is_last = number + 1 >= self.order_count
        return {"orders": [order], "next": None if is_last else number + 1}


def make_rush(buyers: int, orders: int = 2) -> Rush:
    """Return a rush for two units, without a lock. No buyer is ready to buy yet.

    orders  how many orders the shop will list
    """
    shop = ShopOfTwoUnits()
    shop.order_count = orders
    target = OurShop(shop, lock="none", product="apple")
    plan = RushPlan(hosts=[shop.url], buyers=buyers, stock=2)
    rush = Rush(plan, target, id="rush")
    rush.sale_counter.opening_stock = 2
    return rush


def make_rush_of_three(arrived: int = 3, orders: int = 2) -> Rush:
    """Return a rush of three buyers for two units.

    Buyer 0 is answered `sold`, buyer 1 gets no answer, and buyer 2 sends no request.

    arrived  how many buyers were ready to buy when the rush began
    orders   how many orders the shop lists
    """
    rush = make_rush(buyers=3, orders=orders)
    first, second = (Request(f"rush/buyer-{number}", 1) for number in (0, 1))
    first.receive_answer("sold", {"order": 0})
    rush.arrived = arrived
    rush.requests = [first, second]
    return rush


def test_rush_with_a_missing_buyer_is_unknown() -> None:
    """One of three buyers was not ready to buy when the rush began: `never_arrived` is 1."""
    run = make_rush_of_three(arrived=2).judge()
    assert (run["verdict"], run["never_arrived"], run["never_asked"]) == ("unknown", 1, 0)


@pytest.mark.parametrize(("orders", "verdict"), [(2, "unknown"), (3, "oversold")])
@pytest.mark.parametrize(
    ("is_stopped", "why"),
    [
        (True, "the rush was stopped"),
        (False, "worker 1 on host has ended, so the answers to 1 of 3 buyers are lost"),
    ],
)
def test_incomplete_rush_is_unknown_unless_it_had_oversold(
    orders: int, verdict: str, is_stopped: bool, why: str
) -> None:
    """The user stopped the rush, or one of Locust's two workers ended before its report.

    The lost worker had buyer 1 only, so the answer to buyer 1 is not known.
    """
    rush = make_rush_of_three(orders=orders)
    rush.released_at = 1.0
    if is_stopped:
        rush.stopped = True
    else:
        buyers_of_second_worker = range(1, 3, 2)  # only buyer 1: buyers 0 and 2 are the first's
        rush.record_lost_process(BuyerProcess("host_1", buyers_of_second_worker))
    run = rush.judge()
    assert run["verdict"] == verdict
    assert run["why"].startswith(why)


def test_order_without_the_id_of_this_rush_is_a_ghost() -> None:
    """A ghost order belongs to no buyer of this rush.

    The keys of this rush's buyers are rush/buyer-0 and so on. The shop lists orders of `buyer-0`
    and `buyer-1`. They may be from an earlier rush, where the buyers have the same names.
    """
    rush = make_rush_of_three()
    assert isinstance(rush.target, OurShop)
    assert isinstance(rush.target.shop, ShopOfTwoUnits)
    rush.target.shop.key_prefix = ""
    run = rush.judge()
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_ack", "ghost_order"])


def test_run_of_a_failed_rush_has_its_sale_and_its_lock() -> None:
    """A rush that failed has an error and no figures."""
    rush = make_rush(buyers=2)
    rush.failure = "no answer"
    assert rush.conclude() == {
        "lock": "none",
        "sale": 0,
        "verdict": "unknown",
        "error": "no answer",
    }


def test_verdict_text_has_the_stock_only_if_the_shop_shows_it() -> None:
    """`stock_left` is None if the shop does not show its stock."""
    run = make_rush_of_three(orders=3).judge()
    assert describe_run(run).startswith(
        "OVERSOLD [none]: 3 orders for 2 units, 0 left on the shelf\n"
    )
    run["stock_left"] = None
    assert describe_run(run).startswith("OVERSOLD [none]: 3 orders for 2 units\n")


def test_sale_is_judged_by_the_requested_stock() -> None:
    """The rush requested a sale of three units, but the shop opened one of two.

    Both units are sold. So one of the requested three left the stock without an order, which is a
    lost_update.
    """
    rush = make_rush_of_three()
    rush.plan = replace(rush.plan, stock=3)
    run = rush.judge()
    assert (run["initial_stock"], run["violations"]) == (3, ["wrong_stock", "lost_update"])
    assert run["why"] == "the sale opened with 2 units, and 3 were requested"


# --- a rush that another process judges -----------------------------------------------------------


def make_rush_judged_elsewhere() -> Rush:
    """Return a rush of three buyers that only reports their answers, for another process to judge.

    The rush must send no request to its shop: no server listens at the shop's address.
    """
    rush = make_rush_of_three()
    rush.plan = replace(rush.plan, judge=False)
    rush.target = OurShop(Shop("http://127.0.0.1:9", token=""), lock="none", product="apple")
    return rush


def test_report_is_the_same_after_json() -> None:
    """The report of the buyers' answers is sent as JSON to the process that judges the rush."""
    rush = make_rush_judged_elsewhere()
    report_fields = json.loads(json.dumps(rush.conclude()))
    assert BuyersReport.from_json(report_fields) == rush.make_report()
    assert [request.outcome for request in rush.make_report().requests] == ["sold", "unknown"]


def test_report_of_a_failed_rush_has_the_error() -> None:
    """The process that should judge the rush reads why there is no report."""
    rush = make_rush_judged_elsewhere()
    rush.failure = "no answer"
    assert rush.conclude()["error"] == "no answer"


def judge_from_report(rush: Rush) -> dict[str, Any]:
    """Judge a rush from its report, as another process does. The shop has two orders."""
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
    """The rush is judged by its own judge(), or by another process from its report."""
    run = make_rush_of_three().judge()
    assert list(judge_from_report(make_rush_judged_elsewhere())) == list(run)
    assert run.keys() >= Judged.__annotations__.keys()


@pytest.mark.parametrize("judge", [Rush.judge, judge_from_report])
def test_sold_without_an_order_number_is_found(
    judge: Callable[[Rush], dict[str, Any]],
) -> None:
    """Buyer 0 is answered `sold`, without a number, and has order 0.

    This project's shop always answers with the number, so a missing number is a violation. Only for
    third-party shops is the number taken from the orders instead.
    """
    rush = make_rush_of_three()
    rush.requests[0].order = None
    run = judge(rush)
    assert run["violations"] == ["lost_ack"]
    assert run["findings"] == ["rush/buyer-0 was answered sold, without a number; it has order 0"]


def test_buyers_of_a_lost_process_count_as_arrived() -> None:
    """Two of three buyers have arrived at the barrier, as far as the processes have reported.

    If a worker was lost, the third buyer may have arrived there.
    """
    rush = make_rush_judged_elsewhere()
    rush.arrived = 2
    assert judge_from_report(rush)["never_arrived"] == 1
    rush.lost = ["worker 1 is gone"]
    assert judge_from_report(rush)["never_arrived"] == 0


def test_restock_token_is_not_sent_to_the_workers() -> None:
    """open() opens the sale, and returns the announcement that is sent to Locust's workers.

    The announcement has the plan of the rush, without the token that opens sales.
    """
    rush = make_rush_of_three()
    rush.plan = replace(rush.plan, restock_token="secret")
    announcement = rush.open()
    assert "secret" not in json.dumps(announcement)
    assert RushPlan(**announcement["plan"]) == replace(rush.plan, restock_token="")


@pytest.mark.parametrize(
    ("field", "wrong_value"),
    [("hosts", []), ("buyers", 0), ("deadline_s", 60)],  # there is only a field `deadline`
)
def test_error_in_a_plan_has_the_name_of_the_field(field: str, wrong_value: Any) -> None:
    """A plan of a rush needs a host, a buyer, and no other fields than those of RushPlan."""
    fields: dict[str, Any] = {"hosts": ["http://127.0.0.1:9"], field: wrong_value}
    with pytest.raises((TypeError, ValueError), match=field):
        RushPlan(**fields)


# --- promised orders, which the shop has accepted and not written yet -----------------------------


@pytest.mark.parametrize("unsettled", [1, None])
def test_rush_with_promised_orders_that_are_not_written_is_unknown(unsettled: int | None) -> None:
    """The shop has not written one order that it accepted, or does not know how many (None)."""
    rush = make_rush_of_three()
    assert isinstance(rush.target, OurShop)
    assert isinstance(rush.target.shop, ShopOfTwoUnits)
    rush.target.shop.unsettled = unsettled
    run = rush.judge()
    assert (run["verdict"], run["violations"]) == ("unknown", ["unsettled"])
    assert "promised orders are not written" in run["why"]


# --- figures --------------------------------------------------------------------------------------


#: Buyer a is refused (the shop is full) and sends a second request. Buyers b and c are answered
#: once, and d gets no answer. Each request has the times at which it was sent and answered, in ns.
REQUESTS = [
    Request("a", 10_000_000, 20_000_000, outcome="full"),
    Request("b", 25_000_000, 200_000_000),
    Request("c", 1_000_000, 30_000_000),
    Request("a", 400_000_000, 500_000_000, outcome="sold"),
    Request("d", 41_000_000),
]


def test_timing_has_durations_of_purchases_and_of_requests() -> None:
    """A purchase lasts from the first request of a buyer to its last answer.

    The purchases of buyers a, b and c took 490, 175 and 29 ms (`buy_ms`). The two requests of buyer
    a took 10 and 100 ms (`requests`). Buyer d was not answered, so only its arrival counts: the
    first requests were sent from 1 to 41 ms.
    """
    assert measure_timing(REQUESTS) == {
        "duration_s": 0.499,
        "buy_ms": {"p50": 175.0, "p95": 490.0, "p99": 490.0, "max": 490.0},
        "arrival_spread_ms": 40.0,
        "began_s": 0.001,
        "requests": {"p50": 29.0, "p99": 175.0, "max": 175.0},
        "in_flight": 2,
    }


def test_request_that_begins_when_another_ends_is_not_in_flight_with_it() -> None:
    """Each pair has the times at which a request begins and ends."""
    assert compute_max_in_flight([(1, 2), (2, 3)]) == 1
    assert compute_max_in_flight([(1, 2)] * 3) == 3


def test_percentile_is_a_value_that_was_measured() -> None:
    """The durations are 1 to 150 ms. Percentiles are not interpolated: p1 has the rank 2 of 150."""
    durations_ms = [float(number) for number in range(150, 0, -1)]
    figures = compute_percentiles(durations_ms, 1, 50, 95, 99)
    assert figures == {"p1": 2.0, "p50": 75.0, "p95": 143.0, "p99": 149.0, "max": 150.0}


def test_timing_without_requests_is_zero() -> None:
    """No buyer sent a request."""
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
    """A worker sends the answers to all its buyers in one message, encoded with msgpack.

    If one answer could not be encoded, all would be lost. msgpack can encode neither a number of
    more than 64 bits nor half a surrogate pair.
    """
    request = Request("rush/buyer-0", 1)
    answer.record_in(request)
    received = Request(*msgpack.loads(msgpack.dumps(pack_request(request))))
    assert (received.outcome, received.order, received.error) == (answer.outcome, order, message)
