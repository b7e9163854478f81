"""make load: its options, its figures, what it concludes of a run, its table."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from loadtest.commands import load
from loadtest.commands.main import parse
from loadtest.judge.intervals import Request
from loadtest.load.figures import compute_figures, jain_index
from loadtest.load.measurement import Measurement
from loadtest.load.plan import OPEN_MODEL_THREADS, LoadOptions, LoadPlan
from loadtest.load.verdict import judge_load
from loadtest.report import load_table
from loadtest.stack.client import Shop
from loadtest.tests import sample_reports
from tools import readme

PLAN = LoadPlan(
    id="run", lock="redis", sales={"load-001": 7}, hosts=["http://127.0.0.1:1"], stock=500,
    clients=2, pids={},
)  # fmt: skip


def chosen(*words: str) -> LoadOptions:
    options = vars(parse(["load", *words], ""))
    del options["command"]
    return LoadOptions(**options)


def test_every_option_is_a_field_of_the_load() -> None:
    fields = dict.fromkeys(LoadOptions.__dataclass_fields__, "4")
    fields["arrivals"] = "constant"
    fields["lock"] = fields.pop("locks").replace("4", "redis,row-lock")
    words = []
    for name, text in fields.items():
        words += [f"--{name.replace('_', '-')}", text]
    fours: dict[str, Any] = dict.fromkeys(LoadOptions.__dataclass_fields__, 4)
    fours["locks"] = ["redis", "row-lock"]
    fours["arrivals"] = "constant"
    assert chosen(*words) == LoadOptions(**fours)


def test_load_has_the_defaults_of_its_dataclass() -> None:
    assert chosen() == LoadOptions()
    assert chosen("--clients", "64", "--nodes", "2").threads == 32
    assert chosen("--arrivals-per-second", "10").threads == OPEN_MODEL_THREADS


def said_of(number: int) -> dict[str, Any]:
    """Return what the answer `sold` says of this order."""
    lock = {"fence": number, "released": "released"}
    seen = {"stock_seen": 501 - number, "replayed": False}
    return {"order": number, "sale": 7, "lock": lock, **seen}


def bought(number: int, at: float, took: float, *outcomes: str, client: int = 0) -> list[Request]:
    """A purchase that was to be sent at this second; its answers came after as many seconds."""
    ns = [round((at + took * n) * 1e9) for n in range(len(outcomes) + 1)]
    requests = [Request(f"run/c{client}-{number}", sent) for sent in ns[:-1]]
    for request, outcome, answered in zip(requests, outcomes, ns[1:], strict=True):
        request.answer(outcome, said_of(number) if outcome == "sold" else {})
        request.answered_at = answered
    return requests


def measured(*purchases: list[Request], end: float = 10.0, **more: Any) -> Measurement:
    requests = [request for purchase in purchases for request in purchase]
    cpu = {"nodes": 0.2, "PostgreSQL": None, "Valkey": 0.0, "Locust": 0.05}
    return Measurement({"load-001": requests}, 0.0, end, cpu, **more)


def test_what_was_sold_in_the_measured_time_counts_and_nothing_else() -> None:
    asked = measured(
        bought(1, -1.0, 0.5, "sold"),  # in the warm-up
        bought(2, 1.0, 0.1, "sold"),
        bought(3, 2.0, 0.1, "busy", "sold", client=1),
        bought(4, 3.0, 0.1, "busy"),
        bought(5, 9.9, 0.4, "sold"),  # its answer came after the end
    )
    found = compute_figures(asked, PLAN)
    assert (found["sold"], found["sold_per_s"], found["ended_by"]) == (2, 0.2, "time")
    assert found["answer_ms"] == {"p50": 200.0, "p99": 400.0, "max": 400.0}
    assert (found["errors"], found["jain"]) == (2, 1.0)
    assert found["cpu_ms_per_sale"]["nodes"] == 100.0
    assert found["cpu_ms_per_sale"]["PostgreSQL"] is None, "unknown, and never 0"


def test_a_sale_that_ran_out_is_measured_until_its_last_unit() -> None:
    asked = measured(bought(1, 1.0, 1.0, "sold"), bought(2, 4.0, 1.0, "sold"))
    found = compute_figures(asked, replace(PLAN, stock=2))
    assert (found["ended_by"], found["measured_s"], found["sold_per_s"]) == ("stock", 5.0, 0.4)


@pytest.mark.parametrize(
    ("stock", "answers_at", "ended_by", "measured_s"),
    [
        (1, [], "time", 10.0),
        (0, [], "time", 10.0),
        (0, [2.0], "time", 10.0),
        (1, [2.0], "stock", 2.0),
        (2, [2.0], "time", 10.0),
        (2, [2.0, 5.0], "stock", 5.0),
        (2, [5.0, 2.0], "stock", 5.0),
        (2, [2.0, 10.0], "time", 10.0),  # the last unit was sold when the measurement ended
        (2, [2.0, 11.0], "time", 10.0),
        (1, [2.0, 5.0], "stock", 5.0),
    ],
)
def test_sale_ran_out_if_its_last_unit_was_sold_before_the_end(
    stock: int, answers_at: list[float], ended_by: str, measured_s: float
) -> None:
    purchases = [
        bought(number, answered_at - 0.5, 0.5, "sold")
        for number, answered_at in enumerate(answers_at, 1)
    ]
    figures = compute_figures(measured(*purchases), replace(PLAN, stock=stock))
    assert (figures["ended_by"], figures["measured_s"]) == (ended_by, measured_s)


def test_jains_index_is_1_if_all_got_as_much_and_1_in_n_if_one_got_all() -> None:
    assert [jain_index([3, 3]), jain_index([4, 0, 0, 0]), jain_index([0, 0])] == [1.0, 0.25, None]


class Sold(Shop):
    """A shop with one sale of 500 units, and these orders."""

    def __init__(self, orders: list[dict[str, Any]], left: int) -> None:
        super().__init__("http://127.0.0.1:9")
        self.found, self.left = orders, left

    def settled_sale(self, number: int, *, seconds: float = 0.0) -> dict[str, Any]:
        count = len(self.found)
        return {"initial_stock": 500, "stock_left": self.left, "orders": count, "unsettled": 0}

    def orders(self, sale: int) -> list[dict[str, Any]]:
        return self.found


def order(number: int) -> dict[str, Any]:
    of_buyer = {"key": f"run/c0-{number}", "buyer": f"c0-{number}", "product": "load-001"}
    sold = {"lock": "redis", "fence": number, "stock_seen": 501 - number, "amount": 1}
    return {"order": number, **of_buyer, **sold, "time": "2026-01-02T03:04:05+00:00"}


@pytest.mark.parametrize(
    ("orders", "left", "verdict", "violations"),
    [
        ([1], 499, "exact", []),  # who was refused is left out
        ([1], 500, "unknown", ["lost_update"]),  # the decrement was erased
        ([], 500, "unknown", ["lost_ack"]),
        ([1, 2], 498, "unknown", ["ghost_order"]),  # c0-2 was refused, and has an order
    ],
)
def test_a_sale_that_adds_up_is_exact_and_no_other(
    orders: list[int], left: int, verdict: str, violations: list[str]
) -> None:
    asked = measured(bought(1, 1.0, 0.1, "sold"), bought(2, 9.0, 0.1, "busy", "busy"))
    found = judge_load(PLAN, asked, Sold([order(one) for one in orders], left))
    assert (found["verdict"], found["violations"]) == (verdict, violations)
    assert found["never_answered"] == 1


@pytest.mark.parametrize("outcome", ["busy", "throttled", "unavailable", "lost", "full"])
def test_buyers_who_were_refused_all_the_time_are_not_left_out(outcome: str) -> None:
    """They came when there was time enough to ask again."""
    asked = measured(bought(1, 1.0, 0.1, "sold"), bought(2, 2.0, 4.0, outcome, outcome))
    found = judge_load(PLAN, asked, Sold([order(1)], 499))
    assert (found["verdict"], found["never_answered"]) == ("unknown", 1)
    assert found["why"].startswith(f"1 had no final answer (1 {outcome})")


@pytest.mark.parametrize("name", ["fence", "amount", "product", "lock"])
def test_load_is_not_exact_without_a_field_of_its_orders(name: str) -> None:
    """No node records, so that the orders and the answers have to show it."""
    listed = {**order(1), name: None}
    found = judge_load(PLAN, measured(bought(1, 1.0, 0.1, "sold")), Sold([listed], 499))
    assert (found["verdict"], found["violations"][0]) == ("unknown", "unrecorded")
    assert found["why"] == f"order 1 has no {name}"


def test_units_that_vanish_where_nobody_bought_are_found() -> None:
    assert judge_load(PLAN, measured(), Sold([], 500))["verdict"] == "exact"
    assert judge_load(PLAN, measured(), Sold([], 499))["verdict"] == "unknown"


def run_of(lock: str, verdict: str = "exact", *, number: int = 1, **more: Any) -> Any:
    """One run of ten seconds, in which nine units were sold."""
    found = measured(*[bought(n, n, 0.1 * (n + 1), "sold", client=n % 2) for n in range(9)])
    run: dict[str, Any] = {
        "lock": lock, "fault": "rush", "expected": "oversold" if lock == "none" else "exact",
        "verdict": verdict, "why": "", "round": number, "lost_updates": 0,
        "settlement_lag_ms": None,
        "products": [{"product": "load-001", "asked": 500, "orders": 100, "left": 400}],
        **compute_figures(found, PLAN),
        **more,
    }  # fmt: skip
    return {**run, **load.conclusion(run, found, PLAN)}


def summary_of(*runs: Any, **asked: Any) -> Any:
    chosen = LoadOptions(locks=list(dict.fromkeys(run["lock"] for run in runs)), **asked)
    return {
        **sample_reports.summary_of(*runs),
        "rounds": chosen.rounds,
        "load": {**asdict(chosen), "given": "--rounds 3"},
        "medians": load_table.medians(runs),
    }


@pytest.mark.parametrize(
    ("lock", "verdict", "lost", "as_expected"),
    [
        *(("redis", "exact", 0, True), ("redis", "oversold", 0, False)),
        *(("redis", "unknown", 12, False), ("none", "oversold", 90, True)),
        ("none", "unknown", 90, True),  # it did not run out, and its sums are wrong already
        ("none", "exact", 0, False),
    ],
)
def test_a_verdict_is_compared_with_that_of_the_rush(
    lock: str, verdict: str, lost: int, as_expected: bool
) -> None:
    assert run_of(lock, verdict, lost_updates=lost)["as_expected"] is as_expected


@pytest.mark.parametrize(
    ("found", "as_expected", "why"),
    [
        (measured(turned_away=3), False, "lower --arrivals-per-second"),
        (measured(shares=0), False, "1 of Locust's workers were lost"),
        (measured(is_busy=True), True, "its own limit was measured"),
    ],
)
def test_failed_measurement_is_never_as_expected(
    found: Measurement, as_expected: bool, why: str
) -> None:
    concluded = load.conclusion(run_of("redis"), found, PLAN)
    assert (concluded["as_expected"], why in concluded["why"]) == (as_expected, True)


def test_medians_are_over_the_rounds_and_unknown_where_a_round_is() -> None:
    """The median of 0, 4,000 and 0 errors is 0: so the most is shown."""
    rounds = enumerate(((9.0, 0), (5.0, 4000), (8.0, 0)), 1)
    runs = [run_of("redis", number=n, sold_per_s=rate, errors=e) for n, (rate, e) in rounds]
    runs[1]["jain"] = None
    found = load_table.medians(runs)["redis"]
    assert (found["sold/s"], found["Jain"], found["errors"]) == (8.0, None, 4000)
    assert found["CPU ms PostgreSQL"] is None


def test_table_shows_unknown_figures_and_the_command() -> None:
    runs = [run_of("none", "unknown", lost_updates=7), run_of("redis")]
    text = load_table.markdown(summary_of(*runs, products=100, nodes=4, rounds=3))
    rows = text.splitlines()
    assert rows[0].startswith("| lock | verdict | sold/s | p50 ms | p99 ms | p99 / p50 | Jain |")
    assert rows[2].startswith("| `none` | **LOST UPDATES** | 1 | ")
    cells = [cell.strip() for cell in rows[3].split("|")]
    assert cells[-5:-1] == ["22.22", "unknown", "0.00", "5.56"]
    assert '`make load ARGS="--rounds 3"`' in text
    assert "Medians of 3 interleaved rounds of " in text
    assert "2 CPUs, Python 3.11.7, PostgreSQL 18.4, Valkey 9.1.2" in text


def test_the_page_of_scale_has_the_newest_whole_run_of_each_kind(tmp_path: Path) -> None:
    whole = [run_of("redis", number=n) for n in (1, 2, 3)]
    for name, summary in enumerate(
        (
            *(summary_of(*whole, rounds=3), summary_of(*whole, rounds=3, clients=9)),
            *(summary_of(whole[0], clients=10), summary_of(*whole, rounds=3, products=100)),
            summary_of(*whole, rounds=3, arrivals_per_second=400.0),
            summary_of(*[run_of("redis", "unknown") for _ in range(3)], rounds=3, clients=11),
        )
    ):
        folder = tmp_path / f"2026-01-02T03-04-0{name}"
        folder.mkdir()
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / load_table.NAME).write_text(load_table.markdown(summary))
    tables = readme.load_tables(tmp_path).splitlines()
    assert [line for line in tables if line.startswith("### ")] == [
        "### One hot product, 9 clients (closed model), 2 nodes",
        "### One hot product, 400 arrivals a second (open model), 2 nodes",
        "### 100 products, Zipf skew 1.1, 64 clients (closed model), 2 nodes",
    ]
