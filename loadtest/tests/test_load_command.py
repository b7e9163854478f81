"""The command `load`: its options, its figures, its verdict on a run, and its table."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from loadtest.commands import load
from loadtest.commands.main import parse
from loadtest.judge.intervals import Request
from loadtest.load.figures import compute_figures, compute_jain_index
from loadtest.load.measurement import Measurement
from loadtest.load.plan import OPEN_MODEL_THREADS, LoadOptions, LoadPlan
from loadtest.load.verdict import judge_load
from loadtest.report import load_table
from loadtest.stack.client import Shop
from loadtest.tests import sample_reports
from tools import readme

PLAN = LoadPlan(
    id="run",
    lock="redis",
    sales={"load-001": 7},
    hosts=["http://127.0.0.1:1"],
    stock=500,
    clients=2,
    pids={},
)


def parse_options(*arguments: str) -> LoadOptions:
    """Return the options of the command `load` with these arguments."""
    options = vars(parse(["load", *arguments], ""))
    del options["command"]
    return LoadOptions(**options)


def test_every_field_of_load_options_has_an_option() -> None:
    """Each field is a number, except `locks`. The number here is 4, which every option accepts."""
    options: dict[str, Any] = {"locks": ["redis", "row-lock"]}
    arguments = ["--lock", "redis,row-lock"]
    for name in LoadOptions.__dataclass_fields__.keys() - {"locks"}:
        options[name] = 4
        arguments += [f"--{name.replace('_', '-')}", "4"]
    assert parse_options(*arguments) == LoadOptions(**options)


def test_options_have_the_defaults_of_the_dataclass() -> None:
    """Without arguments each option has the default that LoadOptions declares."""
    assert parse_options() == LoadOptions()


def test_worker_has_a_thread_for_each_client_of_its_node() -> None:
    """64 clients on 2 nodes need 32 threads. Without clients, in the open model, it is fixed."""
    assert parse_options("--clients", "64", "--nodes", "2").threads == 32
    assert parse_options("--arrivals-per-second", "10").threads == OPEN_MODEL_THREADS


def make_sold_body(number: int) -> dict[str, Any]:
    """Return the body of the answer `sold` to the nth purchase of a sale of PLAN.stock units."""
    return {
        "order": number,
        "sale": 7,
        "lock": {"fence": number, "released": "released"},
        "stock_seen": PLAN.stock + 1 - number,
        "replayed": False,
    }


def make_purchase(
    number: int, *outcomes: str, begin: float, answer_seconds: float, client: int = 0
) -> list[Request]:
    """Return the requests of a purchase, one for each outcome, sent one right after another.

    number          the number of the purchase, and of its order
    begin           the time of the first request, in seconds
    answer_seconds  seconds from each request to its answer
    client          the number of the client, which buys again and again
    """
    requests = []
    sent_at = begin
    for outcome in outcomes:
        request = Request(f"run/c{client}-{number}", round(sent_at * 1e9))
        request.receive_answer(outcome, make_sold_body(number) if outcome == "sold" else {})
        sent_at += answer_seconds
        request.answered_at = round(sent_at * 1e9)
        requests.append(request)
    return requests


def measure(*purchases: list[Request], end: float = 10.0, **fields: Any) -> Measurement:
    """Return a measurement from second 0 to second `end` with these purchases.

    fields  other fields of the measurement
    """
    requests = [request for purchase in purchases for request in purchase]
    cpu = {"nodes": 0.2, "PostgreSQL": None, "Valkey": 0.0, "Locust": 0.05}
    return Measurement({"load-001": requests}, 0.0, end, cpu, **fields)  # begins at 0.0


def test_only_sales_in_the_measured_time_count() -> None:
    """The measurement is from 0 to 10 s, and two purchases were answered `sold` in it.

    `answer_ms` has the times to answer of all purchases that began in it and sold. Jain's index is
    1, because each of the two clients bought once.
    """
    measurement = measure(
        make_purchase(1, "sold", begin=-1.0, answer_seconds=0.5),  # in the warm-up
        make_purchase(2, "sold", begin=1.0, answer_seconds=0.1),
        make_purchase(3, "busy", "sold", client=1, begin=2.0, answer_seconds=0.1),
        make_purchase(4, "busy", begin=3.0, answer_seconds=0.1),
        make_purchase(5, "sold", begin=9.9, answer_seconds=0.4),  # the answer came after the end
    )
    figures = compute_figures(measurement, PLAN)
    assert (figures["sold"], figures["sold_per_s"], figures["ended_by"]) == (2, 0.2, "time")
    assert figures["answer_ms"] == {
        "p50": 200.0,
        "p99": 400.0,
        "max": 400.0,
    }  # median of 100, 200, 400
    assert (figures["errors"], figures["jain"]) == (2, 1.0)
    assert figures["cpu_ms_per_sale"]["nodes"] == 100.0  # 0.2 s for two sales
    assert figures["cpu_ms_per_sale"]["PostgreSQL"] is None, "unknown, and never 0"


def test_sold_out_sale_is_measured_until_its_last_unit() -> None:
    """The last of two units is sold at 5 s, and the measurement would have lasted 10 s."""
    measurement = measure(
        make_purchase(1, "sold", begin=1.0, answer_seconds=1.0),
        make_purchase(2, "sold", begin=4.0, answer_seconds=1.0),
    )
    figures = compute_figures(measurement, replace(PLAN, stock=2))
    assert (figures["ended_by"], figures["measured_s"]) == ("stock", 5.0)
    assert figures["sold_per_s"] == 0.4


@pytest.mark.parametrize(
    ("stock", "sold_at", "ended_by", "measured_s"),
    [
        (1, [], "time", 10.0),
        (0, [], "time", 10.0),
        (0, [2.0], "time", 10.0),  # a sale that had no unit has no last unit
        (1, [2.0], "stock", 2.0),
        (2, [2.0], "time", 10.0),
        (2, [2.0, 5.0], "stock", 5.0),
        (2, [5.0, 2.0], "stock", 5.0),
        (2, [2.0, 10.0], "time", 10.0),  # the last unit was sold when the measurement ended
        (2, [2.0, 11.0], "time", 10.0),
        (1, [2.0, 5.0], "stock", 5.0),  # oversold: measured until the last sale
    ],
)
def test_sale_is_sold_out_if_its_last_unit_was_sold_in_time(
    stock: int, sold_at: list[float], ended_by: str, measured_s: float
) -> None:
    """The measurement ends after 10 s, or before that with the sale of the last unit."""
    purchases = [
        make_purchase(number, "sold", begin=answered_at - 0.5, answer_seconds=0.5)
        for number, answered_at in enumerate(sold_at, 1)
    ]
    figures = compute_figures(measure(*purchases), replace(PLAN, stock=stock))
    assert (figures["ended_by"], figures["measured_s"]) == (ended_by, measured_s)


def test_jains_index_measures_how_evenly_clients_bought() -> None:
    """The argument has the number of purchases of each client.

    The index is 1 if all bought equally often, 1/n if one of n clients bought everything, and None
    if nothing was bought.
    """
    assert compute_jain_index([3, 3]) == 1.0
    assert compute_jain_index([4, 0, 0, 0]) == 0.25
    assert compute_jain_index([0, 0]) is None


class ShopAfterLoad(Shop):
    """A shop, without a server, that had one sale of PLAN.stock units."""

    def __init__(self, listed_orders: list[dict[str, Any]], stock_left: int) -> None:
        super().__init__("http://127.0.0.1:9")
        self.listed_orders = listed_orders
        self.stock_left = stock_left

    def wait_for_settled_sale(self, number: int, *, seconds: float = 0.0) -> dict[str, Any]:
        return {
            "initial_stock": PLAN.stock,
            "stock_left": self.stock_left,
            "orders": len(self.listed_orders),
            "unsettled": 0,
        }

    def orders(self, sale: int) -> list[dict[str, Any]]:
        return self.listed_orders


def make_order(number: int) -> dict[str, Any]:
    """Return the nth order of a sale of PLAN.stock units, as the shop lists it."""
    return {
        "order": number,
        "key": f"run/c0-{number}",
        "buyer": f"c0-{number}",
        "product": "load-001",
        "lock": "redis",
        "fence": number,
        "stock_seen": PLAN.stock + 1 - number,
        "amount": 1,
        "time": "2026-01-02T03:04:05+00:00",
    }


@pytest.mark.parametrize(
    ("orders", "left", "verdict", "violations"),
    [
        ([1], 499, "exact", []),
        ([1], 500, "unknown", ["lost_update"]),
        ([], 500, "unknown", ["lost_ack"]),
        ([1, 2], 498, "unknown", ["ghost_order"]),  # purchase 2 has an order, although refused
    ],
)
def test_only_a_sale_that_adds_up_is_exact(
    orders: list[int], left: int, verdict: str, violations: list[str]
) -> None:
    """Of 500 units one is sold. Purchase 2 is refused until the end, and is left out.

    orders  the numbers of the orders that the shop lists
    left    the stock that it shows
    """
    measurement = measure(
        make_purchase(1, "sold", begin=1.0, answer_seconds=0.1),
        make_purchase(2, "busy", "busy", begin=9.0, answer_seconds=0.1),
    )
    shop = ShopAfterLoad([make_order(number) for number in orders], left)
    run = judge_load(PLAN, measurement, shop)
    assert (run["verdict"], run["violations"]) == (verdict, violations)
    assert run["never_answered"] == 1


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        ("busy", "exact"),
        ("lost", "exact"),
        ("full", "exact"),
        ("unavailable", "exact"),
        ("throttled", "unknown"),  # after this answer and those below, a buyer does not ask again
        ("closed", "unknown"),
        ("error", "unknown"),
        ("unknown", "unknown"),
    ],
)
def test_only_late_buyers_who_would_ask_again_are_left_out(outcome: str, verdict: str) -> None:
    """The second buyer asks a second before the end of the measurement, and gets this answer."""
    measurement = measure(
        make_purchase(1, "sold", begin=1.0, answer_seconds=0.1),
        make_purchase(2, outcome, begin=9.0, answer_seconds=0.1),
    )
    run = judge_load(PLAN, measurement, ShopAfterLoad([make_order(1)], 499))
    assert (run["verdict"], run["never_answered"]) == (verdict, 1)


@pytest.mark.parametrize("outcome", ["busy", "throttled", "unavailable", "lost", "full"])
def test_buyers_who_had_time_to_ask_again_are_not_left_out(outcome: str) -> None:
    """The second buyer is refused at the middle of the measurement, and again at its end."""
    measurement = measure(
        make_purchase(1, "sold", begin=1.0, answer_seconds=0.1),
        make_purchase(2, outcome, outcome, begin=2.0, answer_seconds=4.0),
    )
    run = judge_load(PLAN, measurement, ShopAfterLoad([make_order(1)], 499))
    assert (run["verdict"], run["never_answered"]) == ("unknown", 1)
    assert run["why"].startswith(f"1 had no final answer (1 {outcome})")


@pytest.mark.parametrize("name", ["fence", "amount", "product", "lock"])
def test_load_is_not_exact_without_a_field_of_its_orders(name: str) -> None:
    """In a load run the nodes record no events, so the orders must have all their fields."""
    shop = ShopAfterLoad([{**make_order(1), name: None}], 499)
    run = judge_load(PLAN, measure(make_purchase(1, "sold", begin=1.0, answer_seconds=0.1)), shop)
    assert (run["verdict"], run["violations"][0]) == ("unknown", "unrecorded")
    assert run["why"] == f"order 1 has no {name}"


def test_units_that_vanish_without_a_purchase_are_found() -> None:
    """No unit of the 500 was bought, and the shop shows a stock of 500, or of 499."""
    assert judge_load(PLAN, measure(), ShopAfterLoad([], 500))["verdict"] == "exact"
    assert judge_load(PLAN, measure(), ShopAfterLoad([], 499))["verdict"] == "unknown"


def make_run(lock: str, verdict: str = "exact", *, round_number: int = 1, **fields: Any) -> Any:
    """Return the run of a measurement of ten seconds in which nine units were sold.

    The nth purchase takes n tenths of a second. The figures in the field `products` are invented.

    round_number  how often this strategy was measured, this time included
    """
    purchases = [
        make_purchase(
            number, "sold", client=number % 2, begin=number - 1, answer_seconds=0.1 * number
        )
        for number in range(1, 10)
    ]
    measurement = measure(*purchases)
    run: dict[str, Any] = {
        "lock": lock,
        "fault": "rush",
        "expected": "oversold" if lock == "none" else "exact",
        "verdict": verdict,
        "why": "",
        "round": round_number,
        "lost_updates": 0,
        "settlement_lag_ms": None,
        "products": [{"product": "load-001", "asked": 500, "orders": 100, "left": 400}],
        **compute_figures(measurement, PLAN),
        **fields,
    }
    return {**run, **load.assess_run(run, measurement, PLAN)}


def make_summary(*runs: Any, **load_options: Any) -> Any:
    """Return the contents of summary.json for a command `load` with these runs and options."""
    locks = list(dict.fromkeys(run["lock"] for run in runs))
    options = LoadOptions(locks=locks, **load_options)
    return {
        **sample_reports.make_summary(*runs),
        "rounds": options.rounds,
        "load": {**asdict(options), "given": "--rounds 3"},
        "medians": load_table.compute_medians(runs),
    }


@pytest.mark.parametrize(
    ("lock", "verdict", "lost_updates", "as_expected"),
    [
        ("redis", "exact", 0, True),
        ("redis", "oversold", 0, False),
        ("redis", "unknown", 12, False),
        ("none", "oversold", 90, True),
        ("none", "unknown", 90, True),  # not sold out, but the lost updates show the flaw
        ("none", "exact", 0, False),
    ],
)
def test_verdict_is_compared_with_the_expected_one_of_the_rush(
    lock: str, verdict: str, lost_updates: int, as_expected: bool
) -> None:
    """In a rush `redis` should be exact, and `none` should oversell or lose updates."""
    assert make_run(lock, verdict, lost_updates=lost_updates)["as_expected"] is as_expected


@pytest.mark.parametrize(
    ("measurement", "as_expected", "why"),
    [
        (measure(turned_away=3), False, "lower --arrivals-per-second"),
        (measure(processes=0), False, "1 of Locust's workers were lost"),
        (measure(locust_is_busy=True), True, "its own limit was measured"),
    ],
)
def test_incomplete_measurement_is_not_as_expected(
    measurement: Measurement, as_expected: bool, why: str
) -> None:
    """The measurement is incomplete if it turned buyers away or lost one of Locust's workers.

    If Locust was too busy, the measurement is complete, but `why` mentions it.
    """
    assessment = load.assess_run(make_run("redis"), measurement, PLAN)
    assert assessment["as_expected"] is as_expected
    assert why in assessment["why"]


def test_medians_are_over_the_rounds_and_unknown_if_a_round_is() -> None:
    """Jain's index is unknown in one of three rounds, and so is its median.

    For the errors the maximum is shown, because the median of 0, 4,000 and 0 would hide them.
    """
    runs = [
        make_run("redis", round_number=1, sold_per_s=9.0, errors=0),
        make_run("redis", round_number=2, sold_per_s=5.0, errors=4000, jain=None),
        make_run("redis", round_number=3, sold_per_s=8.0, errors=0),
    ]
    medians = load_table.compute_medians(runs)["redis"]
    assert (medians["sold/s"], medians["Jain"], medians["errors"]) == (8.0, None, 4000)
    assert medians["CPU ms PostgreSQL"] is None


def test_table_shows_unknown_figures_and_the_command() -> None:
    """The CPU time of PostgreSQL was not measured in these runs."""
    runs = [make_run("none", "unknown", lost_updates=7), make_run("redis")]
    text = load_table.markdown(make_summary(*runs, products=100, nodes=4, rounds=3))
    rows = text.splitlines()
    assert rows[0].startswith("| lock | verdict | sold/s | p50 ms | p99 ms | p99 / p50 | Jain |")
    assert rows[2].startswith("| `none` | **LOST UPDATES** | 1 | ")
    columns = [column.strip() for column in rows[3].split("|")]
    # CPU ms per sale of the nodes, PostgreSQL, Valkey and Locust; after them the row ends with "|".
    assert columns[-5:-1] == ["22.22", "unknown", "0.00", "5.56"]
    assert '`make load ARGS="--rounds 3"`' in text
    assert "Medians of 3 interleaved rounds of " in text
    assert "2 CPUs, Python 3.11.7, PostgreSQL 18.4, Valkey 9.1.2" in text


def test_scale_page_has_the_newest_whole_run_of_each_kind(tmp_path: Path) -> None:
    """There are three kinds of runs: one product, many products, and the open model.

    Only runs of three rounds count that ended as expected.
    """
    rounds = [make_run("redis", round_number=number) for number in (1, 2, 3)]
    unknown_rounds = [make_run("redis", "unknown")] * 3
    summaries = [
        make_summary(*rounds, rounds=3),  # replaced by the next one
        make_summary(*rounds, rounds=3, clients=9),
        make_summary(rounds[0], clients=10),  # too few rounds
        make_summary(*rounds, rounds=3, products=100),
        make_summary(*rounds, rounds=3, arrivals_per_second=400.0),
        make_summary(*unknown_rounds, rounds=3, clients=11),  # not as expected
    ]
    for index, summary in enumerate(summaries):
        folder = tmp_path / f"2026-01-02T03-04-0{index}"
        folder.mkdir()
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / load_table.FILENAME).write_text(load_table.markdown(summary))
    tables = readme.make_load_tables(tmp_path).splitlines()
    assert [line for line in tables if line.startswith("### ")] == [
        "### One hot product, 9 clients (closed model), 2 nodes",
        "### One hot product, 400 arrivals a second (open model), 2 nodes",
        "### 100 products, Zipf skew 1.1, 64 clients (closed model), 2 nodes",
    ]
