"""Lesson 9: what a buyer does with each answer, and with none."""

import uuid
from collections.abc import Callable
from types import ModuleType

from shop.errors import CommitUnknown, ShopError
from shop.models import PurchaseHistory
from shop.sale.checkout import check_out
from shop.sale.purchase import Attempt
from workshop.checks.purchases import PRODUCT, open_sale
from workshop.refusal import Refusal

#: How often a buyer asks at most.
MOST = 6
#: A strategy of the database's own: no lock is needed here.
LOCK = "row-lock"
NextKey = Callable[[str, str], str | None]


class NoKey(Exception):
    """The participant's function returned neither a key nor None."""


def refusal(module: ModuleType) -> Refusal | None:
    """The first fault in what the buyer does, or None."""

    def next_key(outcome: str, key: str) -> str | None:
        said = module.next_key(outcome, key)
        if said is not None and not (isinstance(said, str) and said):
            raise NoKey(outcome, said)
        return said or None

    try:
        return _two_of_them(next_key) or _answer_lost(next_key) or _others(next_key)
    except NoKey as error:
        outcome, said = error.args
        return Refusal("not-a-key", {"outcome": outcome, "said": repr(said)})


def _answer_lost(next_key: NextKey) -> Refusal | None:
    """The purchase is committed, its answer is lost."""
    sale = open_sale(5)
    outcomes = _shops(next_key)
    orders = PurchaseHistory.objects.filter(sale_id=sale, purchaser="victim")
    numbers = " and ".join(str(order.pk) for order in orders)
    story = tuple(f"asks, is answered {outcome}" for outcome in outcomes)
    if len(orders) > 1:
        return Refusal("new-key", {"orders": numbers}, story)
    if outcomes[-1] != "sold":
        return Refusal("gives-up", {"orders": numbers}, story)
    return Refusal("nags", {"outcome": "sold"}, story) if outcomes.count("sold") > 1 else None


def _two_of_them(next_key: NextKey) -> Refusal | None:
    """Two buyers, both without an answer."""
    first, second = (next_key("unknown", key) for key in ("key-of-ann", "key-of-bob"))
    return Refusal("one-key-for-all", {"key": first}) if first and first == second else None


def _others(next_key: NextKey) -> Refusal | None:
    """Every other outcome: which are final, and which say that asking again makes sense."""
    for outcome in ("sold_out", "sold"):
        if next_key(outcome, "k") is not None:
            return Refusal("nags", {"outcome": outcome})
    if next_key("error", "k") is not None:
        return Refusal("retries-errors")
    for outcome in ("busy", "lost", "unavailable"):
        if next_key(outcome, "k") is None:
            return Refusal("leaves-too-early", {"outcome": outcome})
    return None


def _shops(next_key: NextKey) -> list[str]:
    """The outcomes that the victim sees who goes on as `next_key` says. The first answer gets lost
    after the COMMIT."""
    key: str | None = uuid.uuid4().hex
    outcomes: list[str] = []
    unknown = CommitUnknown.outcome
    while key is not None and len(outcomes) < MOST:
        try:
            check_out(Attempt(product=PRODUCT, buyer="victim", lock=LOCK, key=key))
            outcomes.append("sold" if unknown in outcomes else unknown)
        except ShopError as error:
            outcomes.append(error.outcome)
        key = next_key(outcomes[-1], key)
    return outcomes
