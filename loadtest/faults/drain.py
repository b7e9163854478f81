"""The end of a trial: all other buyers buy until the stock is sold or nobody can buy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from loadtest.faults.buyer import Buyer
from loadtest.faults.testbed import RIVALS
from loadtest.faults.trial import Trial

#: Buyers of a trial, the victim and its rivals among them.
BUYERS = 20
#: How many of the other buyers buy at one time.
AT_ONCE = 3
LONGEST_DRAIN = 40.0


def drain(trial: Trial) -> None:
    """Let all the other buyers buy, until the shelf is empty or nobody can buy any more.

    One goes first, alone: it meets what the fault left behind.
    """
    trial.healed_at = time.monotonic()
    _let_buy(trial, [buyer for buyer in trial.buyers if buyer.asks_again][:1])
    _let_buy(trial, [buyer for buyer in trial.buyers if buyer.asks_again])
    others = range(len(trial.buyers), BUYERS)
    _let_buy(trial, [trial.buyer(f"buyer-{number:02}") for number in others])


def _let_buy(trial: Trial, buyers: Sequence[Buyer]) -> None:
    """Wait until each of these has a final answer, or nobody can buy any more."""
    idle = [buyer for buyer in buyers if not (buyer.started or buyer.answered.is_set())]
    shop = trial.testbed.shop(RIVALS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = [pool.submit(buyer.buy, shop) for buyer in idle]
        while not all(buyer.answered.is_set() for buyer in buyers):
            if _is_stuck(trial):
                for buyer in buyers:
                    buyer.give_up()
            time.sleep(0.02)
    for one in done:
        one.result()


def _is_stuck(trial: Trial) -> bool:
    last = max(trial.healed_at, *(buyer.sold_at for buyer in trial.buyers))
    now = time.monotonic()
    return now - last > 3 * trial.fault.ttl + 0.5 or now - trial.healed_at > LONGEST_DRAIN
