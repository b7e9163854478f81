"""For the optimistic strategies: retry after a conflict, until a deadline."""

import random
import time
from collections.abc import Callable

from django.conf import settings
from django.db import OperationalError

from shop.errors import Busy
from shop.sale.purchase import Attempt, Receipt

#: PostgreSQL: serialization_failure, deadlock_detected. No lost connection: it may have committed.
CONFLICTS = {"40001", "40P01"}
#: Longest pause before the second try, seconds; it triples with each try. Shorter pauses waste the
#: machine on tries that fail: with 1 to 50 ms the rush took twice as long.
FIRST_PAUSE = 0.02
#: Upper bound of that pause, seconds.
LONGEST_PAUSE = 1.0


class Conflict(Exception):
    """Somebody else wrote first; nothing was sold. Read again."""


def until_it_fits(buy_once: Callable[[Attempt], Receipt]) -> Callable[[Attempt], Receipt]:
    """A `buy` that tries again after every conflict, for SHOP_LOCK_WAIT seconds, then is Busy.

    By a deadline, not by a count: with 200 buyers some need more than 20 tries, and a cap of 5
    sold 70 of 100 units.
    """

    def buy(attempt: Attempt) -> Receipt:
        deadline = time.monotonic() + settings.SHOP_LOCK_WAIT
        pause = FIRST_PAUSE
        while True:
            try:
                return buy_once(attempt)
            except (Conflict, OperationalError) as error:
                refused = getattr(error.__cause__, "sqlstate", None) in CONFLICTS
                if not (refused or isinstance(error, Conflict)):
                    raise
                if time.monotonic() > deadline:
                    gave_up = "gave up after repeated write conflicts; nothing was sold"
                    raise Busy(gave_up) from error
            attempt.committing = False  # a conflict, at the COMMIT too, leaves nothing in doubt
            time.sleep(random.uniform(0, pause))
            pause = min(3 * pause, LONGEST_PAUSE)

    return buy
