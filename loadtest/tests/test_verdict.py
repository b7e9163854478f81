"""The verdict on a sale, and how it changes when the sale is read again after it was closed.

Two further tests check that the list of all rules, and the list of all modules that change a
verdict, are complete.
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
    """Judge a sale of two units. By default two buyers have orders, and a third gets `sold_out`.

    answers  a letter for the answer to each buyer: s for `sold`, o for `sold_out`. After a comma
             comes the outcome of one more buyer: "ss,busy" are two `sold` and one `busy`
    orders   the number of orders; order n belongs to buyer n
    changes  other arguments of Judgement() than those of an exact sale, such as `initial_stock`,
             the units that were requested, or `opening_stock`, the units with which the sale began
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


@pytest.mark.parametrize(("stock_left", "violations"), [(1, ("lost_update",)), (-1, ())])
@pytest.mark.parametrize("answers", ["sss", "ss,unknown"])
def test_more_orders_than_units_are_oversold(
    answers: str, stock_left: int, violations: tuple[str, ...]
) -> None:
    """Three buyers have orders for two units. The third is answered `sold`, or `unknown`.

    The verdict does not depend on the stock at the end. It is `oversold` even if the fault of the
    test did not happen.
    """
    judgement = judge_sale(answers, orders=3, stock_left=stock_left)
    assert (judgement.verdict, judgement.oversold, judgement.violations) == (
        "oversold",
        1,
        violations,
    )
    judgement = judge_sale(answers, orders=3, stock_left=stock_left, fault_fired=False)
    assert judgement.verdict == "oversold"


@pytest.mark.parametrize("outcome", sorted({*OUTCOMES} - {"sold", "sold_out"}))
def test_sale_with_a_buyer_without_a_final_answer_is_unknown(outcome: str) -> None:
    """The last buyer has this outcome, which is neither `sold` nor `sold_out`.

    In the first sale both units are sold. In the second sale one unit is sold, and one is left. In
    the third sale one unit is sold, and the other one left the stock without an order.
    """
    judgement = judge_sale(f"ss,{outcome}")
    assert (judgement.verdict, judgement.violations, judgement.never_answered) == ("unknown", (), 1)
    assert judgement.why.startswith(f"1 buyer got no final answer (1 {outcome})")
    judgement = judge_sale(f"s,{outcome}", orders=1, stock_left=1)
    assert (judgement.verdict, judgement.violations, judgement.outcomes[outcome]) == (
        "unknown",
        (),
        1,
    )
    judgement = judge_sale(f"s,{outcome}", orders=1)
    assert (judgement.verdict, judgement.violations) == ("unknown", ("lost_update",))


def test_orphan_lock_is_reported_and_the_sale_stays_exact() -> None:
    """An orphan lock has no holder, but its key is still in Redis after the sale."""
    judgement = judge_sale(orphan_lock="lock:token:pause-token")
    assert (judgement.verdict, judgement.violations) == ("exact", ("orphan_lock",))
    assert "lock:token:pause-token" in judgement.findings[0].description


def test_sale_without_an_order_is_exact_only_if_it_had_no_units() -> None:
    """A buyer is answered `sold_out` ("o"), or there was no buyer (""). There are no orders."""
    assert judge_sale("o", orders=0, stock_left=2).verdict == "unknown"
    assert judge_sale("", orders=0, stock_left=2).verdict == "unknown"
    sale_without_units = judge_sale("o", orders=0, opening_stock=0, initial_stock=0)
    assert sale_without_units.verdict == "exact"


def test_only_exact_exits_with_zero() -> None:
    """Each verdict has its own exit code, and only `exact` has 0."""
    assert [verdict for verdict, code in EXIT_CODES.items() if code == 0] == ["exact"]
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_every_module_that_changes_a_verdict_is_listed() -> None:
    """If this fails, add the module to the list in the docstring of loadtest/judge/verdict.py.

    The pattern below finds the code that sets the field `verdict` of a run.
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
    """The judge applies only the rules in RULES. So each function with @rule must be there."""
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


# --- a sale that is read again after the verdict --------------------------------------------------


def make_shop(*, units_left_at_close: Mapping[int, int], orders: int = 100) -> Any:
    """Return a shop whose sales of 100 units each have this number of orders.

    units_left_at_close  number of a closed sale -> the units that were left when it was closed. All
                         other sales are open.
    """

    def sale(number: int) -> dict[str, Any]:
        return {
            "open": number not in units_left_at_close,
            "stock_left": units_left_at_close.get(number, 0),
            "orders": orders,
            "initial_stock": 100,
        }

    return SimpleNamespace(sale=sale)


def make_exact_run(**fields: Any) -> dict[str, Any]:
    """Return the run of a rush that was judged exact, with these further fields."""
    run = {"lock": "buckets", "verdict": "exact", "violations": [], "as_expected": True}
    return {**run, **fields}


#: The fields of a run with one sale, or with a sale for each product, as in a run of `load`. There
#: were 100 orders, and 40 units were left. reread_sales() compares these numbers only with later
#: ones, and not with each other.
WITH_ONE_SALE_OR_A_SALE_PER_PRODUCT = pytest.mark.parametrize(
    "sale_fields",
    [
        {"sale": 7, "stock_left": 40, "orders": 100},
        {"products": [{"sale": 7, "left": 40, "orders": 100}]},
    ],
)


@WITH_ONE_SALE_OR_A_SALE_PER_PRODUCT
def test_sale_with_fewer_units_at_its_close_is_not_exact(sale_fields: Any) -> None:
    """40 units were left when the sale was judged.

    The first shop still had 40 units when it closed the sale. The second shop had only 10.
    """
    run = make_exact_run(**sale_fields)
    reread_sales(make_shop(units_left_at_close={7: 40}), [run])
    assert run == make_exact_run(**sale_fields)
    reread_sales(make_shop(units_left_at_close={7: 10}), [run])
    assert (run["verdict"], run["violations"]) == ("unknown", ["lost_at_close"])
    assert run["why"] == "sale 7 had 40 units left, and was closed with 10"
    assert not run["as_expected"]


@WITH_ONE_SALE_OR_A_SALE_PER_PRODUCT
@pytest.mark.parametrize(("orders", "verdict"), [(80, "unknown"), (101, "oversold")])
@pytest.mark.parametrize("is_open", [True, False])
def test_orders_that_change_after_the_verdict_are_found(
    sale_fields: Any, orders: int, verdict: str, is_open: bool
) -> None:
    """The sale of 100 units had 100 orders when it was judged. Now it has 80 or 101."""
    run = make_exact_run(**sale_fields)
    shop = make_shop(units_left_at_close={} if is_open else {7: 40}, orders=orders)
    reread_sales(shop, [run])
    assert (run["verdict"], run["violations"]) == (verdict, ["changed_later"])
    assert run["findings"] == [f"sale 7 had 100 orders, and has {orders} now"]
    assert not run["as_expected"]
    if verdict == "oversold":
        assert (run["oversold"], run["why"]) == (1, "")


def test_open_sale_and_run_without_a_sale_are_not_judged_again() -> None:
    """The stock of an open sale is not compared, because buyers may still buy.

    In the second run no sale was opened, because its strategy was not run.
    """
    open_run = make_exact_run(sale=7, stock_left=40, orders=100)
    run_without_sale = make_exact_run(verdict="not_run")
    reread_sales(make_shop(units_left_at_close={}), [open_run, run_without_sale])
    assert open_run["verdict"] == "exact"
    assert run_without_sale["verdict"] == "not_run"


@pytest.mark.parametrize(
    ("nodes", "workers", "expected_verdict"), [(1, 1, "exact"), (1, 2, "oversold")]
)
def test_lock_of_a_process_is_expected_to_hold_in_one_process(
    nodes: int, workers: int, expected_verdict: str
) -> None:
    """The strategy `process` has a lock within one process, so two workers of one node oversell.

    No server runs here: stand-ins for the stack and for Locust return a rush with
    `expected_verdict`.
    """
    stack: Any = SimpleNamespace(
        nodes=[SimpleNamespace(url="http://127.0.0.1:9")],
        token="",
        record=False,
        start_order_consumers_for=lambda lock: None,
        run_while_alive=lambda work: work(),
    )
    judged_rush = {"lock": "process", "verdict": expected_verdict, "buyers": 4, "initial_stock": 2}
    locust: Any = SimpleNamespace(run_rush=lambda plan: judged_rush)
    run = run_rush(stack, locust, RushOptions(nodes=nodes, workers=workers), "process")
    assert (run["expected"], run["as_expected"]) == (expected_verdict, True)
