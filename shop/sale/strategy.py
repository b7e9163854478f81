"""A strategy: one way to guard the stock, with its facts. CONTRIBUTING.md says how to add one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shop.sale.purchase import Attempt, Receipt, Stock


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to guard the check-and-decrement. loadtest/expected.py has its verdicts by fault.

    place       where it stands among the others: the articles', those to copy, those that only
                look right, the database's own
    title       a few words for a table or a drop-down
    summary     one sentence: what it does, and what breaks it
    marks       what its decisive lines contain, for the page that shows its code
    buy         sells one unit to one buyer, or raises a ShopError
    name        the value of `lock` in POST /buy: that of its file, with dashes
    article     where it comes from (A0 to A4), or `beyond`
    backend     what guards the stock: `redis`, `redlock`, `zookeeper`, `postgresql`,
                `process` or `none`
    sound       whether no known fault makes it oversell or stops it for good; those that are no
                lock's matter apart (BEYOND_LOCKS in loadtest/expected.py)
    renewed     whether its lock is renewed for as long as its holder lives
    fenced      whether it is RedisLock, and the database refuses a holder with an old fence
    takes_over  whether contenders take over a lock whose time is past, rather than Redis ending it
    reserves    whether it hands out units by attempt, and has no lock
    deferred    whether its orders are written after the answer, by `manage.py settle`
    rush        the verdict of a rush: `exact` or `oversold`
    needs       a setting without which it answers `unavailable`; empty if it needs none
    fill        moves the units of a new sale from the product's row to where this strategy sells
                them from (as in buckets.py); None where it sells from the row. It sells only
                what was opened for it
    close       ends a sale where this strategy keeps units of it, by the sale's number; how many
                were left there
    settled     what became of the promises of a sale, by its number
    path        its file, where that is none of shop/strategies/
    """

    place: int
    title: str
    summary: str
    marks: tuple[str, ...]
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
    rush: str = "exact"
    needs: str = ""
    fill: Callable[[Stock], None] | None = None
    close: Callable[[int], int] | None = None
    settled: Callable[[int], Any] | None = None
    path: str = ""

    @property
    def file(self) -> str:
        """Where its code is: from the project's folder, or an absolute path."""
        return self.path or f"shop/strategies/{self.name.replace('-', '_')}.py"


#: Every value of `lock`. shop/strategies/__init__.py fills it when the app is ready.
STRATEGIES: dict[str, Strategy] = {}
