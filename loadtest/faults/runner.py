"""The run of one fault: a trial for each strategy, the fault's steps, and the remaining buyers.

A trial is one strategy under the fault, with its own sale. fault.py describes the steps. After the
fault is undone, the remaining buyers of each trial buy. Then cells.py judges the trials.
"""

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

from loadtest.expected import get_expected_verdicts
from loadtest.faults.cells import (
    has_product_name,
    judge_trials,
    make_not_run_cell,
    make_unknown_cells,
)
from loadtest.faults.fault import LONGEST_RECOVERY_IN_TTLS, Fault
from loadtest.faults.fault_buyer import FaultBuyer
from loadtest.faults.testbed import RIVALS_NODE, VICTIMS_NODE, run_in_parallel, wait_for
from loadtest.faults.trial import BUYERS, NotFired, Trial
from loadtest.judge.run import Cell
from loadtest.stack.client import StrategyFacts

#: How long to wait for the buyers' threads after a step of their fault failed.
RUN_BUYERS_TIMEOUT_SECONDS = 15.0
#: Number of remaining buyers that buy at the same time in one trial.
MAX_CONCURRENT_BUYERS = 3
#: Number of trials whose remaining buyers buy at the same time. It is small, because on a busy
#: machine a purchase among many others may take longer than the ttl of its lock.
MAX_CONCURRENT_TRIALS = 8
#: Time limit for each group of remaining buyers in one trial. There are three groups, which buy one
#: after the other: the first buyer alone, the other buyers of the fault, and new buyers.
BUYING_TIMEOUT_SECONDS = 40.0
#: Added to the time in which a lock expires, for slow machines and for waiters that poll.
EXPIRY_SLACK_SECONDS = 0.5
#: How long to wait until keys without a product's name are gone from the lock servers. After a
#: buyer has given up, the node may still work on the request that was cut off.
LEAKED_KEY_TIMEOUT_SECONDS = 1.0


def run_fault(fault: Fault, strategies: Sequence[StrategyFacts]) -> list[Cell]:
    """Inject the fault, and judge every strategy that has an expected verdict under it.

    Return a cell, which has the verdict, for each of these strategies. The cells of unavailable
    strategies are `not_run`. If the fault does not happen, or if a step that all trials share
    fails, the cells of the available strategies are `unknown` with the reason, and the testbed is
    repaired. Raises an error only if the repair fails.
    """
    affected_strategies = find_affected_strategies(fault.name, strategies)
    available_strategies = [strategy for strategy in affected_strategies if strategy["available"]]
    for strategy in available_strategies:
        fault.add_trial(strategy)
    cells: list[Cell] = []
    try:
        if available_strategies:
            cells = _run_trials(fault)
    except Exception as error:
        fault.testbed.log.write(traceback.format_exc().encode())
        for trial in fault.trials:
            for buyer in trial.buyers:
                buyer.give_up()
        _resume_all_buyers(fault)
        fault.testbed.repair()
        cells = make_unknown_cells(fault.name, available_strategies, describe_error(error))
    unavailable_strategies = [
        strategy for strategy in affected_strategies if not strategy["available"]
    ]
    return cells + [make_not_run_cell(fault.name, strategy) for strategy in unavailable_strategies]


def find_affected_strategies(
    fault_name: str, strategies: Sequence[StrategyFacts]
) -> list[StrategyFacts]:
    """Return the strategies that have an expected verdict under a fault."""
    return [strategy for strategy in strategies if fault_name in get_expected_verdicts(strategy)]


def _run_trials(fault: Fault) -> list[Cell]:
    """Open the sales, inject the fault, let the remaining buyers buy, and judge the sales."""
    testbed = fault.testbed
    trials = fault.trials
    testbed.read_new_events()  # skips the events of the faults before this one
    keys_before = testbed.find_leaked_keys()
    # A deferred strategy answers `sold` before the order is in the database. Order consumers write
    # the order later.
    if any(trial.strategy["deferred"] for trial in trials):
        testbed.start_order_consumers()
    testbed.set_ttl(fault.ttl)
    run_in_parallel(trials, Trial.open)
    with _call_afterwards(fault.clean_up):
        evidence = [_run_steps(fault)]
        let_remaining_buyers_buy(trials)
        # The lock of a holder that was killed expires after a ttl.
        wait_for(
            lambda: not any(trial.find_lock_keys() for trial in trials),
            fault.ttl + EXPIRY_SLACK_SECONDS,
        )
        evidence += [fault.describe_observations(), fault.describe_stops_and_ttls()]
        leaked_keys = _find_leaked_keys(fault, keys_before)
        return judge_trials(fault, "; ".join(filter(None, evidence)), leaked_keys)


def _find_leaked_keys(fault: Fault, keys_before: Set[str]) -> list[str]:
    """Return the keys that the sales left on the lock servers: those not in `keys_before`.

    A key without the name of a trial's product counts against all trials. To be fair to them, wait
    until such keys are gone, for at most LEAKED_KEY_TIMEOUT_SECONDS.
    """

    def find_new_keys() -> list[str]:
        # Stack.find_leaked_keys() puts the server's number and the database before each key.
        return sorted(
            key.split("/", 2)[2] for key in fault.testbed.find_leaked_keys() - keys_before
        )

    def has_any_product_name(key: str) -> bool:
        return any(has_product_name(key, trial) for trial in fault.trials)

    wait_for(lambda: all(map(has_any_product_name, find_new_keys())), LEAKED_KEY_TIMEOUT_SECONDS)
    return find_new_keys()


def _run_steps(fault: Fault) -> str:
    """Run the fault's steps from `arm` to `heal`, and return the evidence.

    Raises NotFired, or the error of a step.
    """
    testbed = fault.testbed
    trials = fault.trials
    # Some faults test the loss of promised orders: orders that are in Redis and not yet in the
    # database. No order consumer, which writes them to the database, may run before such a fault
    # happens. Otherwise no promised order might be left to lose.
    must_kill_consumers = (
        fault.loses_promised_orders
        and testbed.nodes[VICTIMS_NODE].order_consumer.process is not None
    )
    run_buyers = partial(_run_or_mark_inconclusive, fault.run_buyers)
    start_first_buyers = partial(_run_or_mark_inconclusive, fault.start_first_buyers)
    buyers_thread = threading.Thread(target=run_in_parallel, args=(trials, run_buyers), daemon=True)
    record_phase = partial(testbed.record_fault, fault.name)

    def resume_and_heal() -> None:
        _resume_all_buyers(fault)
        if buyers_thread.is_alive():
            buyers_thread.join(RUN_BUYERS_TIMEOUT_SECONDS)
        if must_kill_consumers:
            testbed.start_order_consumers()
        fault.heal()
        record_phase("ok", "heal", "healed")

    with _call_afterwards(resume_and_heal):
        try:
            fault.arm()
            record_phase("ok", "arm", fault.title)
            if must_kill_consumers:
                testbed.kill_order_consumers()
            run_in_parallel(trials, start_first_buyers)
            fault.fired_at = time.monotonic()
            record_phase("invoke", "fire", fault.title)
            fault.fire()
            evidence = fault.prove()
            record_phase("ok", "prove", evidence)
            buyers_thread.start()
            fault.act_while_buyers_run()
            buyers_thread.join()
        except NotFired as error:
            # Any step may have raised the error. It is always recorded as a failure of `prove`,
            # because this tells the judge that the fault did not happen.
            record_phase("fail", "prove", str(error))
            raise
    return evidence


@contextmanager
def _call_afterwards(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` after the `with` block, even if the block raises an error.

    If both raise an error, the error of the block is raised.
    """
    try:
        yield
    except BaseException:  # after KeyboardInterrupt, too, stopped processes must be resumed
        with suppress(Exception):
            callback()
        raise
    callback()


def _run_or_mark_inconclusive(step: Callable[[Trial], None], trial: Trial) -> None:
    """Run a step for one trial, and mark the trial as inconclusive if the step fails.

    Without the mark, an error of the load test would look like a correct sale.
    """
    try:
        step(trial)
    except Exception as error:
        trial.mark_inconclusive(describe_error(error))


def describe_error(error: Exception) -> str:
    """Return the text of an error that made a fault inconclusive.

    The text begins with the name of the error's class, except for NotFired, whose message is clear
    without it.
    """
    if isinstance(error, NotFired):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _resume_all_buyers(fault: Fault) -> None:
    """Resume every buyer whose purchase may be stopped."""
    for trial in fault.trials:
        for buyer in trial.buyers:
            fault.testbed.resume(buyer)


def let_remaining_buyers_buy(trials: Sequence[Trial]) -> None:
    """Let all buyers of each trial (one strategy under the fault) buy until they are answered.

    The buyers of the fault come first. Then new buyers come, until the trial has had BUYERS buyers
    in total. A trial ends early if its sale has stopped; see _let_buy().

    At first only the first buyer of each trial buys, in all trials at the same time, because locks
    and connections that the fault broke may delay it.
    """
    run_in_parallel(trials, lambda trial: _let_buy(trial, _find_retrying_buyers(trial)[:1]))
    run_in_parallel(trials, _let_others_buy, max_threads=MAX_CONCURRENT_TRIALS)


def _let_others_buy(trial: Trial) -> None:
    """Let the other buyers of a trial buy, after its first buyer has bought or tried to buy.

    If the first buyer got no final answer, the sale has stopped: the other buyers could not buy
    either. So they are not started.
    """
    retrying_buyers = _find_retrying_buyers(trial)
    numbers = range(len(trial.buyers), BUYERS)
    new_buyers = [trial.add_buyer(f"buyer-{number:02}") for number in numbers]
    has_sale_stopped = bool(retrying_buyers) and not retrying_buyers[0].is_done.is_set()
    if not has_sale_stopped:
        _let_buy(trial, retrying_buyers)
        _let_buy(trial, new_buyers)


def _find_retrying_buyers(trial: Trial) -> list[FaultBuyer]:
    """Return the trial's buyers who repeat their request if its outcome is not final."""
    return [buyer for buyer in trial.buyers if buyer.retries]


def _let_buy(trial: Trial, buyers: Sequence[FaultBuyer]) -> None:
    """Let these buyers buy until each is done, or until the sale of the trial has stopped.

    The sale counts as stopped if no buyer has got a final answer for `longest_gap_seconds`. This is
    enough time for the lock of a killed holder to expire. In any case the wait ends after
    BUYING_TIMEOUT_SECONDS.
    """
    started_at = time.monotonic()
    longest_gap_seconds = LONGEST_RECOVERY_IN_TTLS * trial.ttl + EXPIRY_SLACK_SECONDS

    def are_done_or_stopped() -> bool:
        last_answer_at = max([started_at] + [buyer.finished_at for buyer in trial.buyers])
        has_sale_stopped = time.monotonic() - last_answer_at > longest_gap_seconds
        return has_sale_stopped or all(buyer.is_done.is_set() for buyer in buyers)

    # Buyers that the fault has started are already buying, each in its own thread.
    buyers_to_start = [
        buyer for buyer in buyers if not (buyer.has_started or buyer.is_done.is_set())
    ]
    with ThreadPoolExecutor(MAX_CONCURRENT_BUYERS) as pool:
        futures = [
            pool.submit(buyer.buy, trial.testbed.shop(RIVALS_NODE)) for buyer in buyers_to_start
        ]
        wait_for(are_done_or_stopped, BUYING_TIMEOUT_SECONDS)
        for buyer in buyers:
            buyer.give_up()
    for future in futures:
        future.result()  # raises the error of buy(), if there was one
    for buyer in buyers:
        buyer.is_done.wait()  # ends soon: a request that is under way has a timeout
