"""The cells of the matrix of faults, which has a row for each strategy, a column for each fault.

A trial (trial.py) is one strategy under one fault, with its own sale. The trial's cell has the
verdict on this sale and the problems that were noticed. The cell of a strategy without a trial has
the reason why there was none.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from redis import RedisError

from loadtest.expected import get_expected_verdicts
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS_NODE
from loadtest.faults.trial import BUYERS, STOCK, Trial
from loadtest.judge.history import Event, group_by_product
from loadtest.judge.run import Cell
from loadtest.judge.verdict import Judgement
from loadtest.report.story import tell_story
from loadtest.stack.client import ShopUnreachable, StrategyFacts, explain_unavailability

MAX_KEYS_SHOWN = 3
#: How long to wait until the shop and Redis answer again after a fault.
RETRY_TIMEOUT_SECONDS = 30.0
SLOW_BUYER_MESSAGE = (
    "this machine was too slow: a buyer other than the victim held its lock for longer than the ttl"
)
T = TypeVar("T")


def judge_trials(fault: Fault, evidence: str, leaked_keys: Sequence[str]) -> list[Cell]:
    """Judge each trial (one strategy under the fault), and return the trials' cells.

    A cell has the trial's verdict and further results. Raises ShopUnreachable or RedisError.

    evidence     the observations that show that the fault happened
    leaked_keys  keys that remained on the lock servers after the sales
    """
    # Purchases of earlier sales may still record events. The earlier events of such a purchase show
    # its product, so its new events do not count in the trials of this fault.
    new_events = fault.testbed.read_new_events()
    events = group_by_product(new_events, earlier=fault.testbed.events())
    for trial in fault.trials:
        trial_keys = _find_keys_left_by(fault, trial, leaked_keys)
        trial.judgement = _judge_trial(fault, trial, events[trial.product], trial_keys)
    return [_make_cell(fault, trial, evidence) for trial in fault.trials]


def make_unknown_cells(
    fault_name: str, strategies: Sequence[StrategyFacts], reason: str
) -> list[Cell]:
    """Return a cell with the verdict `unknown` for each strategy.

    A cell is the result of one strategy under one fault.

    reason  why the fault is inconclusive
    """
    return [
        _make_cell_with_defaults(
            fault_name,
            strategy,
            verdict="unknown",
            evidence=f"none: {reason}",
            missing=reason,
        )
        for strategy in strategies
    ]


def make_not_run_cell(fault_name: str, strategy: StrategyFacts, why_not_injected: str = "") -> Cell:
    """Return the cell of a strategy that was not run under a fault, with the reason.

    The cell is as expected if the fault or the strategy does not work with the run's database. It
    is also as expected if a server is not installed, but not in CI, where all servers must be. A
    strategy with a complaint (see StrategyFacts) is never as expected.

    why_not_injected  why the fault is not injected on this database; empty if it is injected
    """
    reason = why_not_injected or explain_unavailability(strategy)
    complaint = strategy.get("complaint", "")
    works_with_database = not why_not_injected and strategy.get("exists", True)
    is_in_ci = bool(os.environ.get("CI"))
    # In CI every strategy and fault that works with the database must be run.
    may_be_skipped = not (works_with_database and is_in_ci)
    problems = []
    if complaint and complaint != reason:  # the reason is in the field `missing` already
        problems.append(complaint)
    return _make_cell_with_defaults(
        fault_name,
        strategy,
        verdict="not_run",
        as_expected=may_be_skipped and not complaint,
        missing=reason,
        wrong=problems,
    )


def has_product_name(key: str, trial: Trial) -> bool:
    """Return whether a Redis key contains the name of the trial's product, as a whole word."""
    return bool(re.search(rf"(?<![\w-]){re.escape(trial.product)}(?![\w-])", key))


def retry_until_answered(request: Callable[[], T]) -> T:
    """Call `request` until the shop and Redis answer, and return its result.

    One call may not be enough, because a fault may leave broken connections behind. Raises the last
    error after RETRY_TIMEOUT_SECONDS.
    """
    deadline = time.monotonic() + RETRY_TIMEOUT_SECONDS
    while True:
        try:
            return request()
        except (ShopUnreachable, RedisError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _find_keys_left_by(fault: Fault, trial: Trial, leaked_keys: Sequence[str]) -> list[str]:
    """Return the leaked keys that may be those of a trial (one strategy under the fault).

    These are the keys with its product's name, and the keys without any product's name.
    """
    other_trials = [other_trial for other_trial in fault.trials if other_trial is not trial]
    return [
        key
        for key in leaked_keys
        if not any(has_product_name(key, other_trial) for other_trial in other_trials)
    ]


def _judge_trial(
    fault: Fault, trial: Trial, events: Sequence[Event], leaked_keys: Sequence[str]
) -> Judgement:
    """Judge a trial by the recorded events and the shop's own report of the sale.

    leaked_keys  keys left on the lock servers, which may be those of the trial
    """
    shop = fault.testbed.shop(RIVALS_NODE)
    # All buyers are done, so a lock that still exists has no holder.
    orphaned_keys = retry_until_answered(trial.find_lock_keys)
    # With two lock servers, any buyer may lose its lock. The judge expects None then.
    buyers_hit_by_fault = None
    if not fault.has_two_lock_servers:
        buyers_hit_by_fault = frozenset([trial.victim_attempt])
    report = retry_until_answered(partial(shop.wait_for_settled_sale, trial.sale))
    return Judgement(
        # The history may also have the events of other faults.
        events=[event for event in events if event["by"] != "fault" or event["f"] == fault.name],
        initial_stock=STOCK,
        opening_stock=int(report["initial_stock"]),
        stock_left=int(report["stock_left"]),
        orders=retry_until_answered(partial(shop.orders, trial.sale)),
        ttl=trial.ttl,
        fault_fired=not trial.inconclusive_reason,
        orphan_lock=", ".join(orphaned_keys),
        leaked_keys=[key for key in leaked_keys if key not in orphaned_keys],
        unsettled_promises=report["unsettled"],
        buyer_keys=[buyer.attempt for buyer in trial.buyers],
        strategy=trial.strategy_name,
        product=trial.product,
        sale=trial.sale,
        nodes_recorded=True,
        buyers_hit_by_fault=buyers_hit_by_fault,
        buyers_without_retry=frozenset(
            buyer.attempt for buyer in trial.buyers if not buyer.retries
        ),
    )


def _make_cell(fault: Fault, trial: Trial, evidence: str) -> Cell:
    """Return the cell of a judged trial (one strategy under the fault).

    Problems that the judgement shows are added to the trial's problems.

    If the verdict is unexpected, the cause may be a slow buyer whom the fault did not hit. Then the
    cell is inconclusive.
    """
    judgement = trial.judgement
    has_expected_verdict = judgement.verdict == trial.expected
    if not has_expected_verdict and not fault.hits_any_buyer and _has_slow_buyer(trial):
        reason = f"{SLOW_BUYER_MESSAGE}; its sale was {judgement.verdict}"
        if judgement.why:
            reason += f": {judgement.why}"
        trial.mark_inconclusive(reason)
        return make_unknown_cells(fault.name, [trial.strategy], trial.inconclusive_reason)[0]
    recovery = None
    if fault.measures_recovery:
        recovery = trial.measure_seconds_to_first_sale(fault.fired_at)
    trial.problems += _find_problems(fault, trial, recovery)
    story = []
    if judgement.verdict != "exact":
        story = tell_story(judgement)
    return _make_cell_with_defaults(
        fault.name,
        trial.strategy,
        sale=trial.sale,
        **judgement.as_judged(),
        as_expected=has_expected_verdict and not (trial.problems or trial.inconclusive_reason),
        evidence=evidence,
        missing=trial.inconclusive_reason,
        wrong=list(trial.problems),
        recovery_s=recovery,
        story=story,
    )


def _has_slow_buyer(trial: Trial) -> bool:
    """Return whether a buyer other than the victim was so slow that its lock expired.

    Such a buyer held its lock for longer than the ttl. This matters only for a strategy that
    oversells if a holder is slow. So the result is False if the lock is renewed. It is also False
    if the strategy is not expected to oversell under the fault `pause`, which makes a holder slow.
    """
    if (
        trial.strategy["renewed"]
        or get_expected_verdicts(trial.strategy).get("pause") != "oversold"
    ):
        return False
    return any(
        hold.attempt != trial.victim_attempt and hold.end - hold.start >= trial.ttl * 1e9
        for hold in trial.judgement.holds
    )


def _find_problems(fault: Fault, trial: Trial, recovery: float | None) -> list[str]:
    """Return the problems of a trial (one strategy under the fault), without its verdict.

    recovery  seconds from the start of the fault to the next sale; None if there was no sale, or if
              the fault does not measure them
    """
    judgement = trial.judgement
    problems = []
    # A complaint says how the shop's description of the strategy differs from expected.py.
    if complaint := trial.strategy.get("complaint"):
        problems.append(complaint)
    must_keep_lock = trial.strategy["renewed"] and not fault.takes_the_lock
    # Two holders are a defect even if a fence prevented them from overselling.
    if must_keep_lock and "overlap" in judgement.violations:
        problems.append(
            "two buyers held the lock at the same time, although the fault takes no lock away"
        )
    if judgement.leaked_keys:
        problems.append(_describe_leaked_keys(judgement.leaked_keys))
    longest_recovery = fault.get_longest_recovery_seconds(trial.strategy)
    # Any other verdict than `exact` is worse than a slow recovery, which is not reported then.
    if judgement.verdict == "exact" and recovery is not None and recovery > longest_recovery:
        problems.append(
            f"no buyer could buy for {recovery:.1f} s; at most {longest_recovery:g} s are allowed"
        )
    return problems


def _describe_leaked_keys(keys: Sequence[str]) -> str:
    """Return a message with the first MAX_KEYS_SHOWN of these keys."""
    names = ", ".join(keys[:MAX_KEYS_SHOWN])
    hidden_count = len(keys) - MAX_KEYS_SHOWN
    if hidden_count > 0:
        names += f" and {hidden_count} more"
    return f"keys were left on the lock servers: {names}"


def _make_cell_with_defaults(fault_name: str, strategy: StrategyFacts, **fields: Any) -> Cell:
    """Return a cell (one strategy under one fault) with these fields. Others are zero or empty."""
    cell: dict[str, Any] = {
        "lock": strategy["name"],
        "fault": fault_name,
        # A strategy without an expected verdict under a fault must be exact.
        "expected": get_expected_verdicts(strategy).get(fault_name, "exact"),
        "buyers": BUYERS,
        "initial_stock": STOCK,
        "orders": 0,
        "stock_left": 0,
        "oversold": 0,
        "undersold": 0,
        "lost_updates": 0,
        "outcomes": {},
        "violations": [],
        "wrong": [],
        "story": [],
        "hold_ms": 0,
        "evidence": "",
        "recovery_s": None,
        "as_expected": False,
    }
    return cast(Cell, cell | fields)
