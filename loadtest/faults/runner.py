"""Makes one fault for all the strategies that it concerns, and judges each."""

import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

from loadtest.expected import expected_of
from loadtest.faults.buyer import Buyer
from loadtest.faults.fault import Fault
from loadtest.faults.testbed import RIVALS, VICTIMS, each, wait_for
from loadtest.faults.trial import STOCK, NotFired, Trial
from loadtest.judge.history import Event, by_product
from loadtest.judge.run import Cell
from loadtest.judge.verdict import Judgement
from loadtest.report.story import timeline
from loadtest.stack.client import Strategy

#: Seconds to wait for the buyers' threads after a step of their fault failed.
ACT_TIMEOUT = 15.0
#: Buyers of a trial, the victim and its rivals among them.
BUYERS = 20
#: How many of the other buyers buy at one time.
AT_ONCE = 3
LONGEST_DRAIN = 40.0


def play(fault: Fault, strategies: Sequence[Strategy]) -> list[Cell]:
    """Make the fault, and judge every strategy that has an expected verdict under it.

    A fault that did not fire, or an error on the way, makes every cell of it `unknown` with the
    reason, and the testbed is put back to how it began. Raises what keeps that from happening.
    """
    found = concerned(fault.name, strategies)
    tried = [one for one in found if one["available"]]
    for one in tried:
        fault.tries(one)
    try:
        cells = _play(fault) if tried else []
    except Exception as error:
        fault.testbed.log.write(traceback.format_exc().encode())
        for trial in fault.trials:
            for buyer in trial.buyers:
                buyer.give_up()
        _resume_everybody(fault)
        fault.testbed.repair()
        cells = unknown(fault.name, tried, reason(error))
    return cells + [_not_run(fault, one) for one in found if not one["available"]]


def concerned(fault: str, strategies: Sequence[Strategy]) -> list[Strategy]:
    """The strategies that a fault concerns."""
    return [one for one in strategies if fault in expected_of(one)]


def _play(fault: Fault) -> list[Cell]:
    testbed, trials = fault.testbed, fault.trials
    testbed.new_events()  # those of the faults before this one
    if any(trial.strategy["deferred"] for trial in trials):
        testbed.settle()
    testbed.set_ttl(fault.ttl)
    each(trials, Trial.open)
    with _afterwards(fault.clean_up):
        evidence = _make(fault)
        each(trials, drain)
        wait_for(lambda: not any(trial.orphans() for trial in trials), fault.ttl + 0.5)
        evidence = "; ".join(filter(None, (evidence, fault.observed(), fault.measured())))
        leaked = sorted(key.split("/", 2)[2] for key in testbed.leaked_keys())
        return judged(fault, evidence, leaked)


def _make(fault: Fault) -> str:
    """Arm, fire, prove, act, heal. Returns the evidence. Raises NotFired, or what a step raises."""
    testbed, trials = fault.testbed, fault.trials
    stops_settling = fault.loses_promises and testbed.nodes[VICTIMS].settler.process is not None
    act, enter = partial(_or_missing, fault.act), partial(_or_missing, fault.enter)
    acting = threading.Thread(target=each, args=(trials, act), daemon=True)
    record = partial(testbed.record_fault, fault.name)

    def end() -> None:
        _resume_everybody(fault)
        if acting.is_alive():
            acting.join(ACT_TIMEOUT)
        if stops_settling:
            testbed.settle()
        fault.heal()
        record("ok", "heal", "healed")

    with _afterwards(end):
        try:
            fault.arm()
            record("ok", "arm", fault.title)
            if stops_settling:
                testbed.stop_settling()
            each(trials, enter)
            fault.fired_at = time.monotonic()
            record("invoke", "fire", fault.title)
            fault.fire()
            evidence = fault.prove()
            record("ok", "prove", evidence)
            acting.start()
            fault.meanwhile()
            acting.join()
        except NotFired as error:
            record("fail", "prove", str(error))
            raise
    return evidence


@contextmanager
def _afterwards(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` after the block. If the block raises, its error counts and not that of `end`."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            end()
        raise
    end()


def _or_missing(what: Callable[[Trial], None], trial: Trial) -> None:
    """Do it for one trial. If it fails, that trial shows nothing, and says why: an error of ours
    must not look like a pass either."""
    try:
        what(trial)
    except Exception as error:
        trial.miss(reason(error))


def reason(error: Exception) -> str:
    """Why a fault shows nothing, in one line."""
    return str(error) if isinstance(error, NotFired) else f"{type(error).__name__}: {error}"


def _resume_everybody(fault: Fault) -> None:
    """Resume every buyer that may be stopped, whatever went wrong."""
    for trial in fault.trials:
        for buyer in trial.buyers:
            fault.testbed.resume(buyer)


def drain(trial: Trial) -> None:
    """Let all the other buyers buy, until the shelf is empty or nobody can buy any more.

    One goes first, and no other beside it: it meets what the fault left behind.
    """
    began, shop = time.monotonic(), trial.testbed.shop(RIVALS)

    def is_over(buyers: Sequence[Buyer]) -> bool:
        bought = max([began, *(buyer.sold_at for buyer in trial.buyers)])
        is_stuck = time.monotonic() - bought > 3 * trial.ttl + 0.5
        return is_stuck or all(buyer.answered.is_set() for buyer in buyers)

    def let_buy(buyers: Sequence[Buyer]) -> None:
        """Wait until each of these has a final answer, or nobody can buy any more."""
        idle = [buyer for buyer in buyers if not (buyer.started or buyer.answered.is_set())]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = [pool.submit(buyer.buy, shop) for buyer in idle]
            wait_for(partial(is_over, buyers), began + LONGEST_DRAIN - time.monotonic())
            for buyer in buyers:
                buyer.give_up()
        for one in done:
            one.result()
        for buyer in buyers:
            buyer.answered.wait()

    again = [buyer for buyer in trial.buyers if buyer.asks_again]
    let_buy(again[:1])
    let_buy(again)
    others = range(len(trial.buyers), BUYERS)
    let_buy([trial.buyer(f"buyer-{number:02}") for number in others])


def judged(fault: Fault, evidence: str, left: Sequence[str]) -> list[Cell]:
    """A cell for each trial. `left`: keys on the lock servers after the drain that no lock leaves.
    Raises ShopUnreachable."""
    new = fault.testbed.new_events()
    events = by_product(new, earlier=fault.testbed.events())
    for trial in fault.trials:
        trial.judgement = _judgement(fault, trial, events[trial.product], left)
    return [_cell(fault, trial, evidence) for trial in fault.trials]


def _judgement(
    fault: Fault, trial: Trial, events: Sequence[Event], left: Sequence[str]
) -> Judgement:
    """Compare what was recorded with the shop's record of the sale."""
    orphans, shop = trial.orphans(), trial.testbed.shop(RIVALS)
    report = shop.settled_sale(trial.sale)
    ours = re.compile(rf"[:{{]{trial.product}")
    return Judgement(
        events=[event for event in events if event["by"] != "fault" or event["f"] == fault.name],
        initial_stock=STOCK,
        opened=int(report["initial_stock"]),
        stock_left=int(report["stock_left"]),
        orders=shop.orders(trial.sale),
        ttl=trial.ttl,
        fired=not trial.missing,
        orphan_lock=", ".join(orphans),
        leaked=[key for key in left if ours.search(key) and key not in orphans],
        unsettled=report["unsettled"],
        buyers=[buyer.attempt for buyer in trial.buyers],
        lock=trial.lock,
        product=trial.product,
        sale=trial.sale,
        recorded=True,
        robbed=None if fault.two_servers else frozenset([f"{trial.attempts}/victim"]),
        excused=frozenset(one.attempt for one in trial.buyers if not one.asks_again),
    )


def _cell(fault: Fault, trial: Trial, evidence: str) -> Cell:
    judgement = trial.judgement
    keeps_lock = trial.strategy["renewed"] and not fault.takes_the_lock
    if keeps_lock and "overlap" in judgement.violations:  # though a fence may have repaired it
        trial.wrong.append("two holders at a time, and the fault took no lock away")
    recovery = trial.recovery(fault.fired_at) if fault.recovery else None
    bound = fault.longest_recovery(trial.strategy)
    if judgement.verdict == "exact" and recovery is not None and recovery > bound:
        trial.wrong.append(f"nobody bought for {recovery:.1f} s, and the bound is {bound:g} s")
    return _of(
        fault.name,
        trial.strategy,
        sale=trial.sale,
        **judgement.as_run(),
        as_expected=judgement.verdict == trial.expected and not (trial.wrong or trial.missing),
        evidence=evidence,
        missing=trial.missing,
        wrong=list(trial.wrong),
        recovery_s=recovery,
        story=timeline(judgement) if judgement.verdict != "exact" else [],
    )


def unknown(fault: str, strategies: Sequence[Strategy], why: str) -> list[Cell]:
    """The cells of a fault that showed nothing, with the reason."""
    facts = {"verdict": "unknown", "evidence": f"none: {why}", "missing": why}
    return [_of(fault, one, **facts) for one in strategies]


def _not_run(fault: Fault, strategy: Strategy) -> Cell:
    """The cell of a strategy whose server is not installed; in CI none may be missing."""
    why = f"{strategy['needs']} is not set, and no such server is installed"
    as_expected = not os.environ.get("CI")
    return _of(fault.name, strategy, verdict="not_run", as_expected=as_expected, missing=why)


def _of(fault: str, strategy: Strategy, **facts: Any) -> Cell:
    """A cell with these facts; without others, nothing was sold and nothing seen."""
    empty: dict[str, Any] = {
        "lock": strategy["name"],
        "fault": fault,
        "expected": expected_of(strategy).get(fault, "exact"),
        "buyers": BUYERS,
        "initial_stock": STOCK,
        **dict.fromkeys(("orders", "stock_left", "oversold", "undersold", "lost_updates"), 0),
        **{"outcomes": {}, "violations": [], "wrong": [], "story": []},
        **{"hold_ms": 0, "evidence": "", "recovery_s": None, "as_expected": False},
    }
    return cast(Cell, empty | facts)
