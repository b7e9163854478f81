"""Lesson 8: a buyer who has lost the lock sells nothing, however late it finds out."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType

from django.db import connection

from locks import LossReason
from shop.demo.interleaving import Actor, Interleaving
from shop.demo.schedules import gate_the_commit
from shop.models import PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale.points import point
from shop.sale.reports import sale_report
from workshop import kit
from workshop.checks.purchases import (
    answer_of,
    at_statement,
    books,
    buy,
    install,
    kill,
    open_sale,
    outcome_of,
    second_of_one,
)
from workshop.checks.watch import alive
from workshop.refusal import Refusal

#: Seconds after which a buyer who goes on is looked at: is it blocked?
GLANCE = 0.01
#: What a late holder may be answered: its buyer asks again.
LATE = ("lost", "busy")
BLOCKED = """
    SELECT coalesce(bool_or(pg_blocking_pids(pid) <> '{}'), false) FROM pg_stat_activity
    WHERE datname = current_database()
"""
SAID = {"acquired": "has the lock", "paused": "is paused", "after_read": "reads"}
SAID |= {"before_commit": "writes", "at_commit": "is about to commit", "after_commit": "commits"}


def refusal(module: ModuleType) -> Refusal | None:
    """Harm that a stale holder can still do, or None."""
    install(module)
    return _alone() or _paused_anywhere() or _both_have_read() or second_of_one()


def _alone() -> Refusal | None:
    """Two buyers one after the other get a unit each."""
    sale = open_sale(2)
    outcomes = [outcome_of(name) for name in "AB"]
    if books(sale) == (2, 0):
        return None
    return Refusal("refuses-everybody", {"first": outcomes[0], "second": outcomes[1]})


def _paused_anywhere() -> Refusal | None:
    """A is paused between any two of its steps; its lock ends, B sells if it can; A goes on."""
    open_sale(10)
    with at_statement(0, kill) as sent:
        buy("A")
    places = ["acquired", *["paused"] * len(sent), "at_commit"]
    return next(filter(None, (_late(number, place) for number, place in enumerate(places))), None)


def _late(number: int, place: str) -> Refusal | None:
    """A is paused at this place, which for `paused` is before its n-th statement."""
    sale, sent = open_sale(10), list[str]()

    def late() -> str:
        gate_the_commit()
        with at_statement(number, partial(point, "paused")) as statements:
            try:
                return outcome_of("A")
            finally:
                sent.extend(statements)

    with Interleaving() as run:
        a = run.enter("A", late)
        with suppress(AssertionError):
            a.runs_to(place)
        if a.waits_at != place:
            return None  # this purchase sent fewer statements than the one before
        _loses_its_lock()
        b = run.enter("B", partial(outcome_of, "B"))
        overtaken = _goes_on(b) and b.result == "sold"
        said = answer_of(a.finishes)
        b.finishes()
    story = _story(run.log)
    if sale_report(sale).lost_updates:
        compares = any("fence" in text.partition(" WHERE ")[2] for text in sent)
        late_write = overtaken or not compares
        return Refusal("checks-then-writes" if late_write else "fence-at-write", {}, story)
    if overtaken and said == "sold":
        return _sold_late(sale, sent[: number - 1] if number else None, story)
    return Refusal("not-lost", {"said": said}, story) if said not in (*LATE, "sold") else None


def _sold_late(sale: int, sent: Sequence[str] | None, story: Sequence[str]) -> Refusal:
    """Why A sold after B: by what it had asked the database before it was paused."""
    if sent is None:
        fence = PurchaseHistory.objects.get(sale_id=sale, purchaser="A").fence
        granted = fence in [lease.fence for lease in kit.leases]
        code = "fence-not-compared" if granted else "clock-as-fence"
        return Refusal(code if fence is not None else "trusts-the-lock", {"fence": fence}, story)
    asked = any("fence" in statement for statement in sent)
    return Refusal("compared-in-python" if asked else "checks-then-writes", {}, story)


def _both_have_read() -> Refusal | None:
    """A has read; the lock ends, B reads too if it can; A writes, then B."""
    sale = open_sale(10)
    with Interleaving() as run:
        a = run.enter("A", partial(outcome_of, "A")).runs_to("after_read")
        _loses_its_lock()
        b = run.enter("B", partial(outcome_of, "B"))
        _goes_on(b, to="after_read")
        a.finishes()
        b.finishes()
    if sale_report(sale).lost_updates:
        return Refusal("fence-at-write", {}, _story(run.log))
    return None


def _loses_its_lock() -> None:
    """As after a pause past the ttl: Redis has dropped the lock, and its holder may know."""
    locks_client().flushdb()
    kit.leases[-1].mark_lost(LossReason.EXPIRED)


def _goes_on(actor: Actor, to: str = "") -> bool:
    """Let it go on to its end, or to a place. False: it waits for somebody in the database."""
    alive()
    while True:
        actor.starts()
        while not actor.settled(GLANCE):
            with connection.cursor() as cursor:
                cursor.execute(BLOCKED)
                if cursor.fetchone()[0]:
                    return False
        if actor.waits_at in (to, None):
            return True


def _story(log: Sequence[str]) -> tuple[str, ...]:
    """The outcome of each buyer, in the words of the lessons."""
    places = (entry.partition(" ") for entry in log)
    return (", ".join(f"{buyer} {SAID.get(place, place)}" for buyer, _, place in places),)
