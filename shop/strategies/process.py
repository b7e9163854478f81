"""A lock inside one process: A1's `synchronized`.

FLAW: it knows nothing of other processes (see locks/classic/process.py). With one node of
one worker it is exact, as A1 says.
"""

from __future__ import annotations

from locks import Lock
from locks.classic.process import ProcessLock
from shop.sale.locked import sell_under
from shop.sale.purchase import Attempt
from shop.sale.strategy import Strategy


def lock_for(attempt: Attempt) -> Lock:
    return ProcessLock(attempt.lock_name)


STRATEGY = Strategy(
    name="process",
    title="Lock in one process",
    article="A1 synchronized",
    summary="Exact in a single process; a second one has a lock of its own.",
    buy=sell_under(lock_for),
    backend="process",
    rush="oversold",
)
