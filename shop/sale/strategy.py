"""Strategy: a way to guard the stock, with its properties. CONTRIBUTING.md shows how to add one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shop.sale.purchase import AnyLease, Attempt, Receipt, Stock


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to guard the stock. loadtest/expected.py has its expected verdict under each fault.

    rank        its position in lists. First come the strategies of the articles (docs/sources.md),
                then strategies to copy, strategies that only look right, strategies in which the
                database guards the stock, and strategies that sell from a counter in Redis
    title       a few words for a table or a drop-down
    summary     one sentence: how it guards the stock, and what breaks it
    highlights  texts that occur in the decisive lines of its code, which the demo's page highlights
    buy         sells one unit to one buyer, or raises a ShopError
    sell_in_loop  sells one unit under a lease of RedisLock that the caller holds. An asgi node
                waits for the lock in its event loop, and calls only this function in a thread. If
                it is None, an asgi node calls `buy` in a thread
    name        the value of `lock` in POST /buy: the name of its file, with dashes
    article     the articles it comes from (A0 to A4) and its name there, or `beyond`
    backend     the server that guards the stock: `redis`, `redlock`, `zookeeper`, `postgresql`,
                `process` or `none`
    sound       whether it neither oversells nor blocks all its buyers forever under any fault of
                the load test, such as a paused process. Faults that no lock can survive do not
                count (FAULTS_BEYOND_LOCKS in loadtest/expected.py)
    renewed     whether its lock is renewed for as long as its holder lives
    fenced      whether the database refuses a holder whose fence is old
    takes_over  whether contenders take over an expired lock, which Redis does not delete
    reserves    whether Redis reserves a unit for each attempt, instead of a lock
    deferred    whether `manage.py settle` writes its orders after the answer
    rush_verdict  the expected verdict if many buyers come at the same moment, without a fault:
                `exact` or `oversold`
    overselling_schedules  how many of the 20 interleavings of two buyers sell the last unit twice
    has_transaction  whether the writes of a purchase are one transaction, so that a refused
                purchase writes nothing
    holds_row   whether it locks the product's row, or a unit's, at the read, so that a restock
                waits for the purchase
    reads_again whether a purchase that notices a restock tries again, in the new sale
    waits_at_write  whether two buyers can read at the same time, and the buyer that writes second
                waits for the other
    databases   the databases that it works with, by their names in Django; empty for all
    needs       a setting without which it answers `unavailable`; empty if it needs none
    fill_own_rows  moves the units of a new sale from the product's row to the rows that this
                strategy sells from (as in buckets.py); None if it sells from the product's row
    close_sale  prepares the close of the sale with this number, and returns the number of units
                left in the strategy's own rows; None if there is nothing to prepare
    read_settlement  returns the figures on the promises of the sale with this number (`settlement`
                of SaleReport in reports.py); None if the strategy makes no promises
    path        its file, if that is not in shop/strategies/
    """

    rank: int
    title: str
    summary: str
    highlights: tuple[str, ...]
    buy: Callable[[Attempt], Receipt]
    name: str = ""
    article: str = "beyond"
    backend: str = "redis"
    sound: bool = False
    renewed: bool = False
    fenced: bool = False
    takes_over: bool = False
    reserves: bool = False
    deferred: bool = False
    rush_verdict: str = "exact"
    overselling_schedules: int = 0
    has_transaction: bool = True
    holds_row: bool = False
    reads_again: bool = False
    waits_at_write: bool = False
    databases: tuple[str, ...] = ()
    needs: str = ""
    fill_own_rows: Callable[[Stock], None] | None = None
    close_sale: Callable[[int], int] | None = None
    read_settlement: Callable[[int], Mapping[str, Any]] | None = None
    path: str = ""
    sell_in_loop: Callable[[Attempt, AnyLease], Receipt] | None = None

    def works_with(self, vendor: str) -> bool:
        """Return whether the strategy can sell on a database, given by its name in Django."""
        return not self.databases or vendor in self.databases

    @property
    def file(self) -> str:
        """The path of the strategy's code: relative to the project's folder, or absolute."""
        return self.path or f"shop/strategies/{self.name.replace('-', '_')}.py"


#: The strategies by name. shop/strategies/__init__.py fills this when the app is ready.
STRATEGIES: dict[str, Strategy] = {}
