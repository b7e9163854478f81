"""The command `target`: the rush against a third-party shop, a target.

A file of the user describes how to buy from the shop. In a rush, many buyers send their purchases
at the same instant. The rush is repeated with different numbers of units.
"""

import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from loadtest.commands.output import Output
from loadtest.commands.rushes import CHANGED_LATER, REREAD_AFTER_SECONDS
from loadtest.judge import history
from loadtest.judge.run import Run
from loadtest.report import html_report, tables
from loadtest.rush.locust.locust_process import BUYERS_HISTORY, LocustProcess, RushFailed
from loadtest.rush.permission import require_permission
from loadtest.rush.plan import RushPlan
from loadtest.target.target import load_target_file
from servers.loopback import exempt_loopback_from_proxies

#: The stock is divided by the first number in the first rush, by the second in the second, and so
#: on in turn. With many units, there are many chances for a race. With few units, more buyers
#: compete for each.
STOCK_DIVISORS = (1, 2, 5)
#: The legend of the table, and what to do next.
LEGEND = """
oversold: orders beyond the stock; lost updates: decrements that another write erased
next: docs/your-shop.md says where to look and which repair fits"""


def run(
    console: Console,
    *,
    target: Path,
    host: str,
    i_may_load: str = "",
    buyers: int = RushPlan.buyers,
    stock: int = RushPlan.stock,
    deadline: float = RushPlan.deadline,
    repeat: int = 10,
    expect: str = "exact",
) -> int:
    """Run rushes against the target until a verdict is not exact, and write the results.

    In a rush, many buyers send their purchases at the same instant.

    target      the file with the subclass of Target
    host        the address of the shop
    i_may_load  the host name of another machine against which the user allows a rush
    deadline    seconds after which buyers give up
    repeat      the maximum number of rushes
    expect      the expected verdict: `exact` for a sound shop

    Returns 0 if the last verdict was the expected one, else 1.

    Writes no results and raises ShopUnreachable or StackError, whose message says what to do, if
    the target's file has an error, the shop does not answer, or Locust ends.
    """
    exempt_loopback_from_proxies()
    target = target.absolute()
    name = load_target_file(target, host).name
    if warning := require_permission(host, i_may_load, buyers=buyers):
        console.print(warning, style="yellow", soft_wrap=True)
    with Output(console) as out, LocustProcess(out.log) as locust:
        buyers_history = out.path / BUYERS_HISTORY
        plan = RushPlan(
            hosts=[host],
            buyers=buyers,
            deadline=deadline,
            target=str(target),
            i_may_load=i_may_load,
            history=str(buyers_history),
        )
        runs: list[Any] = []
        while len(runs) < repeat and (not runs or runs[-1]["verdict"] == "exact"):
            # STOCK_DIVISORS explains why each rush sells another number of units.
            divisor = STOCK_DIVISORS[len(runs) % len(STOCK_DIVISORS)]
            units = max(1, stock // divisor)
            out.progress(f"{len(runs) + 1}/{repeat}  {buyers} buyers, {units} units: {name}")
            run: Any = _rush_and_reread_orders(locust, replace(plan, stock=units), out)
            run["target"] = target.name
            run["expected"] = expect
            run["as_expected"] = run["verdict"] == expect
            run["round"] = len(runs) + 1
            runs.append(run)
            is_exact = run["verdict"] == "exact"
            outcome = "nothing found" if is_exact else tables.make_verdict_markup(run)
            console.print(f"{buyers} buyers for {units} units: {outcome}")
        scope = {field: merge_scopes(runs, field) for field in ("judged", "not_judged")}
        summary = out.make_summary(None, runs)
        summary["target"] = {"file": target.name, "host": host, **scope}
        events = history.read([buyers_history])
        buyers_history.unlink()
        table = tables.markdown(summary, tables.DEMO_COLUMNS)
        out.write_results(summary, events, "target.md", table, title=f"the rush against {name}")
    _print_conclusion(console, runs, scope)
    out.print_files("summary.json", html_report.FILENAME)
    console.print(LEGEND, style="dim")
    return 0 if runs[-1]["as_expected"] else 1


def _rush_and_reread_orders(locust: LocustProcess, plan: RushPlan, out: Output) -> dict[str, Any]:
    """Run a rush (many buyers at the same instant), and return its figures and its verdict.

    If the verdict is `exact`, the orders are read again after REREAD_AFTER_SECONDS, and the rush is
    judged again. Raises StackError. Before a RushFailed is raised, the log is removed, because it
    does not explain more than the error.
    """
    try:
        run = locust.run_rush(plan)
        if run["verdict"] == "exact":
            time.sleep(REREAD_AFTER_SECONDS)
            judge_again(run, **locust.reread_orders())
    except RushFailed:
        Path(out.log.name).unlink()
        raise
    return run


def _print_conclusion(
    console: Console, runs: Sequence[Any], scope: Mapping[str, Sequence[str]]
) -> None:
    """Print the table, the remarks on the last run, the result, and what was judged.

    scope  the sentences of merge_scopes(), by field
    """
    console.print(tables.make_sheet(runs, tables.DEMO_COLUMNS).table())
    tables.print_without_markup(console, tables.explain_run(runs[-1]))
    console.print(f"\n{describe_result(runs)}\n", style="bold", soft_wrap=True)
    for field, sentences in scope.items():
        for sentence in sentences:
            console.print(f"{field.replace('_', ' ')}: {sentence}", soft_wrap=True, markup=False)
    console.print()


def judge_again(
    run: MutableMapping[str, Any],
    *,
    orders: int,
    changes: Sequence[str],
    possible_earlier_orders: int,
) -> None:
    """Change the verdict of an exact run if orders or stock have changed since it was judged.

    The new verdict is `oversold` if there are more orders than units, unless all surplus orders may
    be changed orders from before the rush. After any other change it is `unknown`. In both cases
    the run gets the violation `changed_later`.

    The other parameters are the fields that Rush.reread_orders() returns:

    orders   the number of orders now
    changes  a sentence on each difference from the orders and the stock that were judged
    possible_earlier_orders  the number of orders that may be from before the rush: they look new,
             because their number or buyer has changed since
    """
    if not changes:
        return
    sentences = [
        f"{change}, {REREAD_AFTER_SECONDS:g} s after the rush was judged" for change in changes
    ]
    run["findings"] = run["findings"] + sentences
    run["violations"] = run["violations"] + [CHANGED_LATER]
    run["orders"] = orders
    surplus_orders = orders - run["initial_stock"]
    run["oversold"] = surplus_orders if surplus_orders > possible_earlier_orders else 0
    if run["oversold"]:
        run["verdict"] = "oversold"
        run["why"] = ""
    else:
        run["verdict"] = "unknown"
        run["why"] = sentences[0]


def merge_scopes(runs: Sequence[Mapping[str, Any]], field: str) -> list[str]:
    """Return the sentences on what was judged, or what was not, in all rushes, each only once.

    In a rush, many buyers send their purchases at the same instant. Each rush has one run.
    If a sentence is not in the runs of all rushes, the numbers of its rushes are put before it.

    field  the field of the runs with the sentences: `judged` or `not_judged`
    """
    rushes_by_sentence: dict[str, list[int]] = {}
    for number, run in enumerate(runs, 1):
        for sentence in run[field]:
            rushes_by_sentence.setdefault(sentence, []).append(number)
    merged_sentences = []
    for sentence, numbers in rushes_by_sentence.items():
        if len(numbers) < len(runs):
            rushes = ", ".join(map(str, numbers))
            noun = "rush" if len(numbers) == 1 else "rushes"
            sentence = f"{noun} {rushes}: {sentence}"
        merged_sentences.append(sentence)
    return merged_sentences


def describe_result(runs: Sequence[Run]) -> str:
    """Return a sentence on the verdicts of the rushes (many buyers at the same instant).

    If all rushes were exact, the sentence says that this is no proof, or that there were too few
    buyers to oversell.
    """
    if runs[-1]["verdict"] != "exact":
        return f"found in rush {len(runs)}: {runs[-1]['verdict'].upper()}"
    if not any(0 < run["initial_stock"] < run["buyers"] for run in runs):
        return (
            f"{runs[0]['buyers']} buyers for {runs[-1]['initial_stock']} units cannot oversell: "
            "let more buyers come (--buyers) than there are units (--stock), and sell at least one"
        )
    rushes = "1 rush" if len(runs) == 1 else f"{len(runs)} rushes"
    return (
        f"found in none of {rushes}: that is no proof. "
        "Few processes and a short time between check and write hide a race; the test in "
        "docs/your-shop.md, section 6, decides"
    )
