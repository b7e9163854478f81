"""A buyer waits for the lock in a transaction that began before the holder's was committed.

python -m shop.tests.schedules.late_lock STRATEGY ... prints a JSON object: strategy -> the number
of orders that two buyers get for one unit. It uses the database of DATABASE_URL and the Redis of
REDIS_URL:

    A locks and reads
                          B begins its transaction, and is about to wait for the lock
    A sells, commits and unlocks
                          B locks and reads

A buyer who is refused because the row has changed asks again.
"""

import json
import sys
import threading
from collections.abc import Mapping, Sequence

from shop.tests.schedules.on_database import set_up

#: The longest wait of a buyer for a step of the other.
TIMEOUT_SECONDS = 30.0


class TwoBuyerSteps:
    """Stops buyer A between read and write, until buyer B wants the lock.

    The buyers' threads are named `A` and `B`.
    """

    def __init__(self) -> None:
        self.a_has_read = threading.Event()
        self.b_wants_the_lock = threading.Event()

    def at_point(self, point: str, facts: Mapping[str, object]) -> None:
        """Stop A after its read, until B is about to ask for the lock.

        This is called at each point of a purchase, such as `after_read`.
        """
        buyer = threading.current_thread().name
        if (buyer, point) == ("A", "after_read"):
            self.a_has_read.set()
            wait_for_step(self.b_wants_the_lock)
        elif (buyer, point) == ("B", "acquire"):
            self.b_wants_the_lock.set()


def wait_for_step(event: threading.Event) -> None:
    """Wait until the other buyer sets `event`. Raises TimeoutError."""
    if not event.wait(TIMEOUT_SECONDS):
        raise TimeoutError("the other buyer did not reach its point in time")


def sell_one_unit(lock: str) -> int:
    """Open a sale of one unit, let A and B buy, and return the number of orders."""
    from shop.sale.opening import restock
    from shop.sale.points import use_probe
    from shop.sale.reports import sale_report

    sale = restock(product="apple", amount=1, lock=lock)
    steps = TwoBuyerSteps()
    buyers = [threading.Thread(target=buy, args=(lock, name), name=name) for name in "AB"]
    with use_probe(steps.at_point):  # called at each point of a purchase
        buyers[0].start()
        wait_for_step(steps.a_has_read)
        buyers[1].start()
        for buyer in buyers:
            buyer.join()
    return sale_report(sale.pk, buyers=2).orders


def buy(strategy: str, buyer: str) -> None:
    """Try to buy, and try again while the lock is busy. Any other refusal ends the attempts."""
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
    set_up()
    print(json.dumps({name: sell_one_unit(name) for name in strategy_names}))


if __name__ == "__main__":
    main(sys.argv[1:])
