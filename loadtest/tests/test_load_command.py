"""The command `load`, which measures how fast each strategy sells under a steady load.

The tests cover its options, the figures of a run, the verdict on a run, and the table of all runs.
In the closed model each of a fixed number of clients buys again and again. In the open model new
buyers arrive at a fixed rate.
"""

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

#: A load on one product with 500 units, under the strategy `redis`.
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
    """All fields except `locks` are numbers. Every option accepts the number 4."""
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
    """In the closed model (a fixed number of clients) 64 clients on 2 nodes need 32 threads.

    In the open model (buyers arrive at a fixed rate) the number of waiting buyers is unknown, so
    the number of threads is fixed.
    """
    assert parse_options("--clients", "64", "--nodes", "2").threads == 32
    assert parse_options("--arrivals-per-second", "10").threads == OPEN_MODEL_THREADS


def make_sold_answer(number: int) -> dict[str, Any]:
    """Return the body of the answer `sold` to purchase `number`, from 1, of a sale under PLAN."""
    return {
        "order": number,
        "sale": 7,
        "lock": {"fence": number, "released": "released"},
        "stock_seen": PLAN.stock + 1 - number,
        "replayed": False,
    }


def make_requests(
    number: int, *outcomes: str, begin: float, answer_seconds: float, client: int = 0
) -> list[Request]:
    """Return the requests of a purchase. Each is sent when the one before it is answered.

    number          the number of the purchase, and of its order
    outcomes        the outcomes of the requests
    begin           the time of the first request, in seconds
    answer_seconds  seconds from each request to its answer
    client          the number of the client that buys
    """
    requests = []
    sent_at = begin
    for outcome in outcomes:
        request = Request(f"run/c{client}-{number}", round(sent_at * 1e9))
        request.receive_answer(outcome, make_sold_answer(number) if outcome == "sold" else {})
        sent_at += answer_seconds
        request.answered_at = round(sent_at * 1e9)
        requests.append(request)
    return requests


def make_measurement(*purchases: list[Request], end: float = 10.0, **fields: Any) -> Measurement:
    """Return a measurement from second 0 to second `end` with the requests of these purchases.

    fields  further fields of the measurement
    """
    requests = [request for purchase in purchases for request in purchase]
    cpu = {"nodes": 0.2, "PostgreSQL": None, "Valkey": 0.0, "Locust": 0.05}
    begin = 0.0
    return Measurement({"load-001": requests}, begin, end, cpu, **fields)


def test_only_sales_in_the_measured_time_count() -> None:
    """The measurement lasts from 0 to 10 s. Two purchases are answered `sold` in that time.

    `answer_ms` has the durations of the sold purchases that began in that time: purchase 2 took 100
    ms, 3 took 200 ms with its retry, and 5 took 400 ms. `errors` counts the two answers `busy`.
    `jain` is Jain's fairness index: 1, because each of the two clients bought once.
    """
    measurement = make_measurement(
        make_requests(1, "sold", begin=-1.0, answer_seconds=0.5),  # in the warm-up
        make_requests(2, "sold", begin=1.0, answer_seconds=0.1),
        make_requests(3, "busy", "sold", client=1, begin=2.0, answer_seconds=0.1),
        make_requests(4, "busy", begin=3.0, answer_seconds=0.1),
        make_requests(5, "sold", begin=9.9, answer_seconds=0.4),  # the answer comes after the end
    )
    figures = compute_figures(measurement, PLAN)
    assert (figures["sold"], figures["sold_per_s"], figures["ended_by"]) == (2, 0.2, "time")
    assert figures["answer_ms"] == {"p50": 200.0, "p99": 400.0, "max": 400.0}
    assert (figures["errors"], figures["jain"]) == (2, 1.0)
    assert figures["cpu_ms_per_sale"]["nodes"] == 100.0  # 0.2 s for two sales
    assert figures["cpu_ms_per_sale"]["PostgreSQL"] is None, "unknown, not 0"


def test_measurement_ends_when_the_last_unit_is_sold() -> None:
    """The last of two units is sold at 5 s. Otherwise the measurement would last 10 s."""
    measurement = make_measurement(
        make_requests(1, "sold", begin=1.0, answer_seconds=1.0),
        make_requests(2, "sold", begin=4.0, answer_seconds=1.0),
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
    """The measurement ends after 10 s, or when the last unit is sold, if that is earlier.

    sold_at  the times at which purchases are answered `sold`
    """
    purchases = [
        make_requests(number, "sold", begin=answered_at - 0.5, answer_seconds=0.5)
        for number, answered_at in enumerate(sold_at, 1)
    ]
    figures = compute_figures(make_measurement(*purchases), replace(PLAN, stock=stock))
    assert (figures["ended_by"], figures["measured_s"]) == (ended_by, measured_s)


def test_jains_index_measures_how_evenly_clients_bought() -> None:
    """The argument is the number of purchases of each client.

    Jain's index is 1 if all clients bought equally often, 1 / n if one of n clients bought
    everything, and None if nothing was bought.
    """
    assert compute_jain_index([3, 3]) == 1.0
    assert compute_jain_index([4, 0, 0, 0]) == 0.25
    assert compute_jain_index([0, 0]) is None


class ShopAfterRun(Shop):
    """A shop without a server, as the judge reads it after a run. Its sale had PLAN.stock units."""

    def __init__(self, listed_orders: list[dict[str, Any]], stock_left: int) -> None:
        super().__init__("http://127.0.0.1:9")
        self.listed_orders = listed_orders
        self.stock_left = stock_left

    def wait_for_settled_sale(self, number: int, *, seconds: float = 0.0) -> dict[str, Any]:
        """Return the report of the sale. All accepted orders are written already."""
        return {
            "initial_stock": PLAN.stock,
            "stock_left": self.stock_left,
            "orders": len(self.listed_orders),
            "unsettled": 0,
        }

    def orders(self, sale: int) -> list[dict[str, Any]]:
        return self.listed_orders


def make_order(number: int) -> dict[str, Any]:
    """Return order `number` (from 1) of a sale of PLAN.stock units, as the shop lists it."""
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
    ("orders", "stock_left", "verdict", "violations"),
    [
        ([1], 499, "exact", []),
        ([1], 500, "unknown", ["lost_update"]),
        ([], 500, "unknown", ["lost_ack"]),
        ([1, 2], 498, "unknown", ["ghost_order"]),  # purchase 2 has an order, although refused
    ],
)
def test_run_is_exact_only_if_answers_orders_and_stock_agree(
    orders: list[int], stock_left: int, verdict: str, violations: list[str]
) -> None:
    """Of 500 units one is sold. Purchase 2 is refused twice in the last second, with `busy`.

    A buyer who comes so late has no time to try again, so its requests are not judged. If there is
    an order of this buyer, it is a ghost order: it belongs to no judged buyer.

    orders      the numbers of the orders that the shop lists
    stock_left  the stock that the shop shows
    """
    measurement = make_measurement(
        make_requests(1, "sold", begin=1.0, answer_seconds=0.1),
        make_requests(2, "busy", "busy", begin=9.0, answer_seconds=0.1),
    )
    shop = ShopAfterRun([make_order(number) for number in orders], stock_left)
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
        ("throttled", "unknown"),  # from here on: answers after which a buyer does not try again
        ("closed", "unknown"),
        ("error", "unknown"),
        ("unknown", "unknown"),
    ],
)
def test_only_late_buyers_who_would_try_again_are_not_judged(outcome: str, verdict: str) -> None:
    """The second buyer comes one second before the end of the measurement, and gets this answer.

    After the first four outcomes a buyer would try again, but there is no time left. So its
    requests are not judged. After the other outcomes a buyer stops without a final answer, and the
    verdict is `unknown`. In both cases the run counts the buyer as never answered.
    """
    measurement = make_measurement(
        make_requests(1, "sold", begin=1.0, answer_seconds=0.1),
        make_requests(2, outcome, begin=9.0, answer_seconds=0.1),
    )
    run = judge_load(PLAN, measurement, ShopAfterRun([make_order(1)], 499))
    assert (run["verdict"], run["never_answered"]) == (verdict, 1)


@pytest.mark.parametrize("outcome", ["busy", "throttled", "unavailable", "lost", "full"])
def test_refused_buyers_who_had_time_to_try_again_are_judged(outcome: str) -> None:
    """The second buyer comes at 2 s and is refused at 6 and at 10 s, when the measurement ends.

    The run counts this buyer as `never_answered`, because a refusal is no final answer.
    """
    measurement = make_measurement(
        make_requests(1, "sold", begin=1.0, answer_seconds=0.1),
        make_requests(2, outcome, outcome, begin=2.0, answer_seconds=4.0),
    )
    run = judge_load(PLAN, measurement, ShopAfterRun([make_order(1)], 499))
    assert (run["verdict"], run["never_answered"]) == ("unknown", 1)
    assert run["why"].startswith(f"1 buyer got no final answer (1 {outcome})")


@pytest.mark.parametrize("name", ["fence", "amount", "product", "lock"])
def test_load_is_not_exact_without_a_field_of_its_orders(name: str) -> None:
    """In a run of `load` the nodes record no events, so the orders must have all their fields."""
    shop = ShopAfterRun([{**make_order(1), name: None}], 499)
    run = judge_load(
        PLAN, make_measurement(make_requests(1, "sold", begin=1.0, answer_seconds=0.1)), shop
    )
    assert (run["verdict"], run["violations"][0]) == ("unknown", "unrecorded")
    assert run["why"] == f"order 1 has no {name}"


def test_unit_that_vanishes_without_a_purchase_is_found() -> None:
    """No buyer came. The stock at the end is 500, as at the beginning, or only 499."""
    assert judge_load(PLAN, make_measurement(), ShopAfterRun([], 500))["verdict"] == "exact"
    assert judge_load(PLAN, make_measurement(), ShopAfterRun([], 499))["verdict"] == "unknown"


def make_run(lock: str, verdict: str = "exact", *, round_number: int = 1, **fields: Any) -> Any:
    """Return the run of a measurement of ten seconds in which nine units were sold.

    Purchase n takes n tenths of a second. The field `products` is the same in every run, and does
    not match these purchases.

    round_number  the number of this measurement of the strategy, from 1
    """
    purchases = [
        make_requests(
            number, "sold", client=number % 2, begin=number - 1, answer_seconds=0.1 * number
        )
        for number in range(1, 10)
    ]
    measurement = make_measurement(*purchases)
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
        "load": {**asdict(options), "given": "--rounds 3"},  # the arguments of the user
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
def test_run_is_as_expected_if_its_verdict_or_lost_updates_are(
    lock: str, verdict: str, lost_updates: int, as_expected: bool
) -> None:
    """The strategy `redis` should be exact, and `none` should oversell or lose updates."""
    assert make_run(lock, verdict, lost_updates=lost_updates)["as_expected"] is as_expected


@pytest.mark.parametrize(
    ("measurement", "as_expected", "why"),
    [
        (make_measurement(turned_away=3), False, "lower --arrivals-per-second"),
        # Locust has one process, but none has written its requests.
        (make_measurement(processes=0), False, "1 of Locust's workers were lost"),
        (make_measurement(locust_is_busy=True), True, "its own limit was measured"),
    ],
)
def test_incomplete_measurement_is_not_as_expected(
    measurement: Measurement, as_expected: bool, why: str
) -> None:
    """A measurement is incomplete if buyers were turned away, or one of Locust's workers was lost.

    Buyers are turned away, without a request, if too many others already wait for an answer.
    If Locust itself was too busy, the measurement is complete, but `why` mentions it.
    """
    assessment = load.assess_run(make_run("redis"), measurement, PLAN)
    assert assessment["as_expected"] is as_expected
    assert why in assessment["why"]


def test_median_is_unknown_if_a_figure_of_one_round_is_unknown() -> None:
    """Jain's index is unknown in one of three rounds, so its median is unknown.

    For errors the table has the maximum, because the median of 0, 4000 and 0 would hide them.
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
    """The CPU time of PostgreSQL is unknown. Below the table is the command that made the runs."""
    runs = [make_run("none", "unknown", lost_updates=7), make_run("redis")]
    text = load_table.markdown(make_summary(*runs, products=100, nodes=4, rounds=3))
    rows = text.splitlines()
    assert rows[0].startswith("| lock | verdict | sold/s | p50 ms | p99 ms | p99 / p50 | Jain |")
    assert rows[2].startswith("| `none` | **LOST UPDATES** | 1 | ")
    columns = [column.strip() for column in rows[3].split("|")]
    # CPU ms per sale of the nodes (0.2 s for nine sales), PostgreSQL, Valkey and Locust (0.05 s for
    # nine sales): see make_measurement(). After them the row ends with "|".
    assert columns[-5:-1] == ["22.22", "unknown", "0.00", "5.56"]
    assert '`make load ARGS="--rounds 3"`' in text
    assert "Medians of 3 interleaved rounds of " in text
    assert "2 CPUs, Python 3.11.7, PostgreSQL 18.4, Valkey 9.1.2" in text


def test_documentation_has_the_newest_complete_results_of_each_kind(tmp_path: Path) -> None:
    """There are three kinds: one product, many products, and the open model.

    In the open model buyers arrive at a fixed rate. In the closed model the same clients buy again
    and again.

    Results are complete if they have three rounds, all with the expected verdict. The folders of
    the results are sorted by time, the newest last.
    """
    rounds = [make_run("redis", round_number=number) for number in (1, 2, 3)]
    unknown_rounds = [make_run("redis", "unknown")] * 3
    summaries = [
        make_summary(*rounds, rounds=3),  # not the newest of its kind
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
