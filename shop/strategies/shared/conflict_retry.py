"""Retries after a conflict, until a deadline, for the optimistic strategies."""

import random
import time
from collections.abc import Callable

from django.conf import settings
from django.db import OperationalError

from shop.errors import LockBusy
from shop.ops.database import is_conflict_error
from shop.sale.purchase import Attempt, Receipt

#: Upper bound of the random pause before the second try. The bound triples with each further try,
#: up to MAX_PAUSE_SECONDS. With bounds from 1 ms to 50 ms more tries fail, and many buyers at the
#: same moment take twice the time.
FIRST_PAUSE_SECONDS = 0.02
MAX_PAUSE_SECONDS = 1.0


class Conflict(Exception):
    """Another buyer wrote first; nothing was sold. Read the stock again."""


def retry_on_conflict(buy_once: Callable[[Attempt], Receipt]) -> Callable[[Attempt], Receipt]:
    """Return a `buy` that retries after every conflict, and raises LockBusy after SHOP_LOCK_WAIT.

    The number of tries is not limited. Of 200 buyers at the same moment, some need more than 20
    tries. A conflict means that another transaction has changed the same rows.
    """

    def buy(attempt: Attempt) -> Receipt:
        deadline = time.monotonic() + settings.SHOP_LOCK_WAIT
        max_pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return buy_once(attempt)
            except (Conflict, OperationalError) as error:
                is_write_conflict = isinstance(error, Conflict) or is_conflict_error(error)
                if not is_write_conflict:
                    raise
                if time.monotonic() > deadline:
                    message = (
                        "gave up after repeated write conflicts; nothing was sold: retry with the "
                        "same key"
                    )
                    raise LockBusy(message) from error
            # After a conflict the transaction was rolled back, even if the COMMIT caused it.
            attempt.may_have_committed = False
            time.sleep(random.uniform(0, max_pause))
            max_pause = min(3 * max_pause, MAX_PAUSE_SECONDS)

    return buy
