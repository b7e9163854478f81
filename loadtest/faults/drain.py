"""The end of a trial: all other buyers buy until the stock is sold or nobody can buy."""

from __future__ import annotations

import time
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

    One goes first, and no other beside it: it meets what the fault left behind.
    """
    began = time.monotonic()

    def is_stuck() -> bool:
        now, last = time.monotonic(), max(began, *(buyer.sold_at for buyer in trial.buyers))
        return now - last > 3 * trial.ttl + 0.5 or now - began > LONGEST_DRAIN

    def let_buy(buyers: list[Buyer]) -> None:
        """Wait until each of these has a final answer, or nobody can buy any more."""
        idle = [buyer for buyer in buyers if not (buyer.started or buyer.answered.is_set())]
        shop = trial.testbed.shop(RIVALS)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = [pool.submit(buyer.buy, shop) for buyer in idle]
            while not all(buyer.answered.is_set() for buyer in buyers):
                if is_stuck():
                    for buyer in buyers:
                        buyer.give_up()
                time.sleep(0.02)
        for one in done:
            one.result()

    again = [buyer for buyer in trial.buyers if buyer.asks_again]
    let_buy(again[:1])
    let_buy(again)
    others = range(len(trial.buyers), BUYERS)
    let_buy([trial.buyer(f"buyer-{number:02}") for number in others])
