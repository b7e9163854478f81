"""The verdict on a sale, from its figures, its findings, its open answers and its close.

The lists of rules, and of modules that change a verdict, are complete.
"""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import pytest

import loadtest
from loadtest import judge
from loadtest.commands.rushes import RushOptions, reread_sales, run_rush
from loadtest.judge import verdict as verdict_module
from loadtest.judge.outcomes import OUTCOMES
from loadtest.judge.rule import Rule
from loadtest.judge.run import Judged
from loadtest.judge.verdict import EXIT_CODES, RULES, Judgement
from loadtest.tests.history_builder import HistoryBuilder


def judge_sale(answers: str = "sso", orders: int = 2, **changes: Any) -> Judgement:
    """Judge a sale of two units. By default two buyers have orders, and a third is sold out.

    answers  the answers to the buyers, one letter each: s sold, o sold_out; after a comma, the name
             of the outcome for one more buyer
    orders   the number of orders; order n belongs to buyer n
    changes  fields of the judgement that differ from such a sale
    """
    letters, _, last_outcome = answers.partition(",")
    outcomes = [{"s": "sold", "o": "sold_out"}[letter] for letter in letters]
    if last_outcome:
        outcomes.append(last_outcome)
    history = HistoryBuilder(first_order=1)
    for number, outcome in enumerate(outcomes, 1):
        history.request(0, f"key-{number}")
        history.answer(9, f"key-{number}", outcome, number if outcome == "sold" else None)
    sale: dict[str, Any] = {
        "initial_stock": 2,
        "opening_stock": 2,
        "stock_left": 0,
        "orders": [{"order": number, "key": f"key-{number}"} for number in range(1, orders + 1)],
        "events": history.build().events,
    }
    return Judgement(**{**sale, **changes})


@pytest.mark.parametrize(("left", "violations"), [(1, ("lost_update",)), (-1, ())])
@pytest.mark.parametrize("answers", ["sss", "ss,unknown"])
def test_more_orders_than_units_are_oversold(
    answers: str, left: int, violations: tuple[str, ...]
) -> None:
    """Three buyers have orders for two units. The third is answered sold, or unknown.

    The stock that the shop shows does not change the verdict, nor does a fault that did not fire.
    """
    judgement = judge_sale(answers, orders=3, stock_left=left)
    assert (judgement.verdict, judgement.oversold, judgement.violations) == (
        "oversold",
        1,
        violations,
    )
    assert judge_sale(answers, orders=3, stock_left=left, fault_fired=False).verdict == "oversold"


@pytest.mark.parametrize("outcome", sorted({*OUTCOMES} - {"sold", "sold_out"}))
def test_buyer_without_a_final_answer_leaves_a_sale_unknown(outcome: str) -> None:
    """The last buyer has this outcome, after buyers that were answered sold ("ss," or "s,").

    Of the two units both are sold; or one is left; or one has gone without an order.
    """
    judgement = judge_sale(f"ss,{outcome}")
    assert (judgement.verdict, judgement.violations, judgement.never_answered) == ("unknown", (), 1)
    assert judgement.why.startswith(f"1 had no final answer (1 {outcome})")
    judgement = judge_sale(f"s,{outcome}", orders=1, stock_left=1)
    assert (judgement.verdict, judgement.violations, judgement.outcomes[outcome]) == (
        "unknown",
        (),
        1,
    )
    judgement = judge_sale(f"s,{outcome}", orders=1)
    assert (judgement.verdict, judgement.violations) == ("unknown", ("lost_update",))


def test_orphan_lock_is_reported_and_the_sale_stays_exact() -> None:
    """An orphan lock is a key of a lock that is still in Redis after the sale."""
    judgement = judge_sale(orphan_lock="lock:token:pause-token")
    assert (judgement.verdict, judgement.violations) == ("exact", ("orphan_lock",))
    assert "lock:token:pause-token" in judgement.findings[0].description


def test_sale_without_an_order_is_exact_only_without_a_unit() -> None:
    """A buyer is answered sold_out ("o"), or no buyer came (""), and there are no orders."""
    assert judge_sale("o", orders=0, stock_left=2).verdict == "unknown"
    assert judge_sale("", orders=0, stock_left=2).verdict == "unknown"
    sale_without_units = judge_sale("o", orders=0, opening_stock=0, initial_stock=0)
    assert sale_without_units.verdict == "exact"


def test_only_exact_exits_with_zero() -> None:
    assert [verdict for verdict, code in EXIT_CODES.items() if code == 0] == ["exact"]
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_every_module_that_changes_a_verdict_is_listed() -> None:
    """If this fails, add the module to the list in the docstring of loadtest/judge/verdict.py.

    The pattern below finds the code that sets `verdict` in the fields of a run.
    """
    sets_verdict = re.compile(r'\["verdict"\] = |\|= \{"verdict"|\{\*\*\w+, "verdict": "')
    folder = Path(loadtest.__file__).parent
    sources = {path.relative_to(folder): path.read_text() for path in folder.rglob("*.py")}
    changing_modules = {
        path.as_posix()
        for path, source in sources.items()
        if path.parts[0] != "tests" and sets_verdict.search(source)
    }
    listed_modules = re.findall(
        r"^    (\S+\.py) +(\w+)", verdict_module.__doc__ or "", re.MULTILINE
    )
    assert changing_modules == {module for module, _ in listed_modules}
    for module, function in listed_modules:
        assert f"def {function}(" in sources[Path(module)]


def test_every_rule_is_listed_once() -> None:
    """Only the rules in RULES are applied, so a function under @rule must not be left out."""
    modules = [
        import_module(f"{judge.__name__}.{module.name}") for module in iter_modules(judge.__path__)
    ]
    marked_rules = {
        value for module in modules for value in vars(module).values() if isinstance(value, Rule)
    }
    assert set(RULES) == marked_rules
    assert len(RULES) == len(marked_rules)


def test_judged_part_of_a_run_is_complete() -> None:
    """as_judged() returns exactly the fields that the type `Judged` declares."""
    assert list(judge_sale().as_judged()) == list(Judged.__annotations__)


# --- a sale that was closed -----------------------------------------------------------------------


def make_shop(*, closed_with: Mapping[int, int], orders: int = 100) -> Any:
    """Return a shop whose sales of 100 units each have this number of orders.

    closed_with  the closed sales: the number of a sale -> the units that were left when it was
                 closed; all other sales are open
    """

    def sale(number: int) -> dict[str, Any]:
        return {
            "open": number not in closed_with,
            "stock_left": closed_with.get(number, 0),
            "orders": orders,
            "initial_stock": 100,
        }

    return SimpleNamespace(sale=sale)


def make_exact_run(**fields: Any) -> dict[str, Any]:
    """Return the run of a rush that was judged exact, with these further fields."""
    run = {"lock": "buckets", "verdict": "exact", "violations": [], "as_expected": True}
    return {**run, **fields}


#: The fields of a run with one sale, and those of a run of `load`, which has a sale per product.
#: 40 of 100 units are left, although there are 100 orders: only later changes are judged here.
BOTH_KINDS_OF_RUN = pytest.mark.parametrize(
    "sale_fields",
    [
        {"sale": 7, "stock_left": 40, "orders": 100},
        {"products": [{"sale": 7, "left": 40, "orders": 100}]},
    ],
)


@BOTH_KINDS_OF_RUN
def test_units_that_vanish_at_the_close_prevent_an_exact_verdict(sale_fields: Any) -> None:
    """When it was judged, the sale had 40 units left. It is closed with 40, and then with 10."""
    run = make_exact_run(**sale_fields)
    reread_sales(make_shop(closed_with={7: 40}), [run])
    assert run == make_exact_run(**sale_fields)
    reread_sales(make_shop(closed_with={7: 10}), [run])
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_at_close"])
    assert run["why"] == "sale 7 had 40 units left, and was closed with 10"
    assert not run["as_expected"]


@BOTH_KINDS_OF_RUN
@pytest.mark.parametrize(("orders", "verdict"), [(80, "unknown"), (101, "oversold")])
@pytest.mark.parametrize("is_open", [True, False])
def test_orders_that_change_later_are_found(
    sale_fields: Any, orders: int, verdict: str, is_open: bool
) -> None:
    """When it was judged, the sale had 100 orders. Later it has 80 or 101, `orders`."""
    run = make_exact_run(**sale_fields)
    shop = make_shop(closed_with={} if is_open else {7: 40}, orders=orders)
    reread_sales(shop, [run])
    assert (run["verdict"], run["violations"]) == (verdict, ["changed_later"])
    assert run["findings"] == [f"sale 7 had 100 orders, and has {orders} now"]
    assert not run["as_expected"]
    if verdict == "oversold":
        assert (run["oversold"], run["why"]) == (1, "")


def test_open_sale_and_run_without_a_sale_are_not_judged_again() -> None:
    """The stock of an open sale is not compared, because the sale may go on."""
    open_run = make_exact_run(sale=7, stock_left=40, orders=100)
    run_without_sale = make_exact_run(verdict="not_run")
    reread_sales(make_shop(closed_with={}), [open_run, run_without_sale])
    assert open_run["verdict"] == "exact"
    assert run_without_sale["verdict"] == "not_run"


@pytest.mark.parametrize(
    ("nodes", "workers", "expected_verdict"), [(1, 1, "exact"), (1, 2, "oversold")]
)
def test_lock_of_a_process_is_expected_to_hold_in_one_process(
    nodes: int, workers: int, expected_verdict: str
) -> None:
    """The strategy `process` locks within one process: two workers of one node oversell.

    The servers are replaced by objects that return the expected verdict.
    """
    stack: Any = SimpleNamespace(
        nodes=[SimpleNamespace(url="http://127.0.0.1:9")],
        token="",
        record=False,
        start_order_consumers_for=lambda lock: None,
        run_while_alive=lambda work: work(),
    )
    sale = {"lock": "process", "verdict": expected_verdict, "buyers": 4, "initial_stock": 2}
    locust: Any = SimpleNamespace(run_rush=lambda plan: sale)
    run = run_rush(stack, locust, RushOptions(nodes=nodes, workers=workers), "process")
    assert (run["expected"], run["as_expected"]) == (expected_verdict, True)
