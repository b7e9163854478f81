"""Lesson 8: whoever has lost the lock sells nothing, however late it finds out."""

from __future__ import annotations

from functools import partial
from types import ModuleType

from locks.lease import LossReason
from shop.demo.interleaving import Actor, Interleaving
from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.reports import sale_report
from workshop import kit
from workshop.checks.purchases import books, buy, install, open_sale, outcome_of
from workshop.refusal import Refusal

#: Seconds that a rival has to get on before it counts as blocked.
GRACE = 0.4


def refusal(module: ModuleType) -> Refusal | None:
    """What a stale holder can still do; None if nothing."""
    install(module)
    return _alone() or _before_it_reads() or _between_read_and_write() or _both_have_read()


def _alone() -> Refusal | None:
    """Two buyers one after the other get a unit each."""
    sale = open_sale(2)
    outcomes = [outcome_of(partial(buy, name)) for name in "AB"]
    if books(sale) == (2, 0):
        return None
    return Refusal("refuses-everybody", {"first": outcomes[0], "second": outcomes[1]})


def _before_it_reads() -> Refusal | None:
    """A has the lock and is paused; the lock ends, B sells; A goes on."""
    sale = open_sale(10)
    with Interleaving() as run:
        a = run.enter("A", partial(outcome_of, partial(buy, "A"))).runs_to("acquired")
        _loses_its_lock()
        run.enter("B", partial(outcome_of, partial(buy, "B"))).finishes()
        outcome = a.finishes()
    story = tuple(run.log)
    if outcome != "sold":
        return None
    order = PurchaseHistory.objects.get(sale_id=sale, purchaser="A")
    granted = kit.leases[-2].fence if len(kit.leases) > 1 else None
    code = "trusts-the-lock" if order.fence is None else "clock-as-fence"
    return Refusal(code, {"fence": order.fence, "granted": granted}, story)


def _between_read_and_write() -> Refusal | None:
    """A has read and is paused; the lock ends, B sells if it can; A goes on."""
    sale = open_sale(10)
    with Interleaving() as run:
        a = run.enter("A", partial(outcome_of, partial(buy, "A"))).runs_to("after_read")
        _loses_its_lock()
        b = run.enter("B", partial(outcome_of, partial(buy, "B")))
        _as_far_as_it_comes(b)
        a.finishes()
        b.finishes()
    if sale_report(sale).lost_updates:
        return Refusal("checks-then-writes", {}, tuple(run.log))
    return None


def _both_have_read() -> Refusal | None:
    """A has read; the lock ends, B reads too if it can; A writes, then B."""
    sale = open_sale(10)
    with Interleaving() as run:
        a = run.enter("A", partial(outcome_of, partial(buy, "A"))).runs_to("after_read")
        _loses_its_lock()
        b = run.enter("B", partial(outcome_of, partial(buy, "B")))
        while b.place != "after_read" and b.starts().stops_within(GRACE) and b.place is not None:
            pass
        a.finishes()
        b.finishes()
    if sale_report(sale).lost_updates:
        return Refusal("fence-at-write", {}, tuple(run.log))
    return None


def _loses_its_lock() -> None:
    """As after a pause past the ttl: Redis has dropped the lock, and its holder may know."""
    locks_client().flushdb()
    kit.leases[-1].mark_lost(LossReason.EXPIRED)


def _as_far_as_it_comes(actor: Actor) -> None:
    while actor.starts().stops_within(GRACE) and actor.place is not None:
        pass
