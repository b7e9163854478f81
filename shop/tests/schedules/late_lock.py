"""A script: two buyers want one unit, and B's transaction begins before A's is committed.

python -m shop.tests.schedules.late_lock STRATEGY ... prints a JSON object: strategy -> the number
of orders that the two buyers get. Two orders mean that the strategy has sold the unit twice. The
script uses the database of DATABASE_URL and the Redis of REDIS_URL. The order of the steps is:

    A locks and reads
                          B begins its transaction, and is about to wait for the lock
    A sells, commits and unlocks
                          B locks and reads

If the database refuses a buyer's write, because the row has changed, the buyer tries again.
"""

import json
import sys
import threading
from collections.abc import Mapping, Sequence

from shop.tests.schedules.on_database import set_up_shop

#: Longest time for which a buyer waits for the other buyer's step.
TIMEOUT_SECONDS = 30.0


class BuyerStopper:
    """Stops buyer A between its read and its write, until buyer B is about to acquire the lock.

    The buyers' threads are named `A` and `B`.
    """

    def __init__(self) -> None:
        self.a_has_read = threading.Event()
        self.b_is_about_to_lock = threading.Event()

    def handle_point(self, point: str, fields: Mapping[str, object]) -> None:
        """Stop A after its read, until B is about to acquire the lock.

        This is called at each point of a purchase, a named place in its code such as `after_read`
        (shop/sale/points.py).
        """
        buyer = threading.current_thread().name
        if (buyer, point) == ("A", "after_read"):
            self.a_has_read.set()
            wait_for_step(self.b_is_about_to_lock)
        elif (buyer, point) == ("B", "acquire"):
            self.b_is_about_to_lock.set()


def wait_for_step(event: threading.Event) -> None:
    """Wait until a buyer sets `event`. Raises TimeoutError after TIMEOUT_SECONDS."""
    if not event.wait(TIMEOUT_SECONDS):
        raise TimeoutError(f"a buyer did not make its step within {TIMEOUT_SECONDS:g} s")


def count_orders_for_one_unit(lock: str) -> int:
    """Open a sale of one unit, let A and B buy at the same time, and return the number of orders.

    lock  the name of the strategy
    """
    from shop.sale.opening import restock
    from shop.sale.points import use_probe
    from shop.sale.reports import sale_report

    sale = restock(product="apple", amount=1, lock=lock)
    stopper = BuyerStopper()
    buyer_a, buyer_b = (
        threading.Thread(target=buy_when_free, args=(lock, name), name=name) for name in "AB"
    )
    with use_probe(stopper.handle_point):
        buyer_a.start()
        wait_for_step(stopper.a_has_read)
        buyer_b.start()
        buyer_a.join()
        buyer_b.join()
    return sale_report(sale.pk, buyers=2).orders


def buy_when_free(strategy: str, buyer: str) -> None:
    """Buy a unit. Try again as long as the lock is busy, but not after any other refusal."""
    from django.db import connection

    from shop.errors import LockBusy, ShopError
    from shop.sale.checkout import check_out
    from shop.sale.purchase import Attempt

    try:
        while True:
            try:
                check_out(Attempt("apple", buyer, strategy))
                return
            except LockBusy:
                continue
            except ShopError:
                return
    finally:
        connection.close()


def main(strategy_names: Sequence[str]) -> None:
    """Print for each strategy the number of orders that two buyers get for one unit."""
    set_up_shop()
    print(json.dumps({name: count_orders_for_one_unit(name) for name in strategy_names}))


if __name__ == "__main__":
    main(sys.argv[1:])
