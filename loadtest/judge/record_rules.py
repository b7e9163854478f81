"""The rules on the record itself: nothing in it is missing, and nothing contradicts the rest.

A run whose nodes recorded shows for each order which request it was sold in, under which lock and
in which sale. A record with gaps or contradictions proves nothing: with such a finding only an
oversell can be concluded, which the orders show by themselves.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from operator import itemgetter
from typing import Any

from loadtest.judge.evidence import Evidence
from loadtest.judge.finding import Case, of_order
from loadtest.judge.history import DAMAGED, Event
from loadtest.judge.intervals import Commit, LockHold, Request, group_by, handler_of
from loadtest.judge.required_fields import (
    BEFORE,
    fields_of_event,
    fields_of_order,
    readable_order,
    wrong_fields,
)
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import Record

#: Seconds by which the clocks of nodes and servers may differ.
CLOCKS_APART_SECONDS = 5.0
#: Outcomes that only a node gives that has begun the purchase.
LOOKED_AT = frozenset({"sold", "sold_out", "busy", "lost", "closed"})


@rule("broken_history", voids=True)
def broken_history(record: Record) -> Iterator[Case]:
    """Every line of the history is an event."""
    for event in record.events:
        if event["by"] == DAMAGED:
            yield Case(event.get("what", ""))


@rule("wrong_stock", voids=True)
def wrong_stock(record: Record) -> Iterator[Case]:
    """The sale opened with as many units as were asked for."""
    if (asked := record.initial_stock) != record.opened:
        yield Case(f"the sale opened with {record.opened} units, and {asked} were asked for")


@rule("unrecorded", voids=True, recorded=True)
def unrecorded(record: Record) -> Iterator[Case]:
    """A node recorded how it came to each order and to each answer."""
    for order in record.orders:
        if order["order"] not in record.commit_of:
            yield of_order(order, "was committed by no node that recorded it")
    for request in record.requests:
        missing = _missing(request, record.of_nodes.get(request.attempt, []))
        if missing:
            key = request.attempt
            yield Case(f"{key} was answered {request.outcome}, and no node {missing}", key)

    for hold in record.holds:
        if missing := _missing_of_hold(record, hold):
            yield Case(f"{hold.attempt} held the lock, and its node did not record {missing}")


@rule("unrecorded", voids=True)
def missing_fields(record: Record) -> Iterator[Case]:
    """Each order, answer and event has the fields that the judge compares."""
    if not (record.is_own_shop or record.recorded):
        return
    evidence = record.evidence
    for order in record.listed_orders:
        for what in wrong_fields(order, fields_of_order(evidence)):
            yield of_order(readable_order(order), what)
    for event in record.events:
        if event["by"] in {"node", "fault"} and not record.recorded:
            continue
        for what in wrong_fields(event, fields_of_event(event, evidence)):
            who = f"{event['by']}'s event {event['f']} ({event['type']})"
            yield Case(f"the {who} of {event.get('attempt', 'all')} {what}")


@rule("unrecorded", voids=True, recorded=True)
def missing_events(record: Record) -> Iterator[Case]:
    """What a node recorded of a request has all that came before it."""
    for key, events in record.of_nodes.items():
        for handled in group_by(events, handler_of).values():
            if missing := _missing_before(handled, record.evidence):
                yield Case(f"a node recorded {missing} it for {key}", key)


def _missing_before(events: Sequence[Event], evidence: Evidence) -> str:
    """Return which event lacks the one that comes before it, or empty.

    events  of one attempt in one thread of a process
    """
    kinds: set[str] = set()
    for event in events:
        kind = event["f"]
        needed = [BEFORE[kind]] if kind in BEFORE else []
        if kind == "before_commit":
            needed = ["after_read", *(["reserved"] if evidence.reserves else [])]
        for before in needed:
            if before not in kinds:
                return f"{kind}, and no {before} before"
        kinds.add(kind)
    return ""


def _missing_of_hold(record: Record, hold: LockHold) -> str:
    """Return what a node should have recorded of the end of a hold, or empty. It may be killed
    before the end of a request that has no answer."""
    asked = [one for one in record.requests_by_key.get(hold.attempt, ()) if one.covers(hold.start)]
    if not asked or any(request.type == "info" for request in asked):
        return ""
    if not hold.is_released:
        return "that it released it"
    return "" if hold.release_outcome else "how the release ended"


def _missing(request: Request, events: list[Event]) -> str:
    """What the nodes failed to record of a request that was answered, or empty."""
    if request.outcome not in LOOKED_AT or request.answered_at is None:
        return ""
    kinds = {event["f"] for event in events if request.sent_at <= event["t"] <= request.answered_at}
    if "arrives" not in kinds:
        return "recorded its request"
    if "begins" not in kinds:
        return "recorded which strategy it ran"
    if request.outcome == "sold_out" and not kinds & {"after_read", "reserve"}:
        return "had looked at the stock"
    return ""


@rule("outside_request", voids=True, recorded=True)
def outside_request(record: Record) -> Iterator[Case]:
    """What a node records of a purchase happens between a request of it and its answer, and an
    answer comes after its request."""
    asking: set[str] = set()
    for event in record.events:
        if event["by"] == "buyer" and event["type"] == "invoke":
            asking.add(event["attempt"])
        elif event["by"] == "buyer" and event["attempt"] not in asking:
            key = event["attempt"]
            yield Case(f"{key} was answered {event.get('outcome')} before it had asked", key)
    for key, events in record.of_nodes.items():
        asked = record.requests_by_key.get(key, ())
        if not asked:
            yield Case(f"a node recorded {events[0]['f']} of {key}, and nobody sent that key", key)
            continue
        outside = [e for e in events if not any(request.covers(e["t"]) for request in asked)]
        if outside:
            event = outside[0]
            nearest = min(abs(event["t"] - request.sent_at) for request in asked)
            yield Case(
                f"node {event.get('node', '')} recorded {event['f']} of {key} outside of its "
                f"requests, {nearest / 1e6:.1f} ms from one",
                key,
            )


@rule("foreign_key", voids=True)
def foreign_key(record: Record) -> Iterator[Case]:
    """Only the buyers who were sent asked: anybody else here bought under a key that the run did
    not give out."""
    sent = set(record.buyers)
    for key in record.last:
        if sent and key not in sent:
            yield Case(f"{key} asked, and is none of the buyers who were sent", key)


@rule("wrong_lock", voids=True)
def wrong_lock(record: Record) -> Iterator[Case]:
    """Everybody was sold under the strategy, and by the lock, that the buyer asked for."""
    lock, product = record.lock, record.product
    if not lock:
        return
    asked_for = f", and {lock} was asked for"
    for order in record.orders:
        if order.get("lock", lock) != lock:
            yield of_order(order, f"was sold under {order['lock']}{asked_for}")
    named = f"{lock}:{product}"
    for event in record.events:
        key, what = event.get("attempt", ""), ""
        if event["by"] != "node":
            continue
        if event["f"] == "begins" and event.get("lock", lock) != lock:
            what = f"was served by {event['lock']}"
        elif product and event.get("product", product) != product:
            what = f"was sold {event['product']}"
        elif product and event.get("lock_name", named) != named:
            what = f"took {event['lock_name']}"
        if what:
            yield Case(f"{key} {what}{asked_for}", key)


@rule("contradiction", voids=True)
def contradiction(record: Record) -> Iterator[Case]:
    """What the database has of an order is what its node recorded of it and its buyer was answered:
    the product, the sale, the stock seen, the fence, and who bought."""
    sold = (request for request in record.requests if request.type == "ok")
    answers = group_by(sold, lambda answer: (answer.attempt, answer.order))
    for order in record.orders:
        if what := _unlike(record, order, answers.get((order["key"], order["order"]), [])):
            yield of_order(order, what)
    wanted = record.sale
    for event in record.events:
        sale = event.get("sale")
        if wanted and event["by"] == "node" and sale not in (None, wanted):
            key = event["attempt"]
            yield Case(f"{key} came for sale {wanted}, and {event['f']} was of sale {sale}", key)
    twice = Counter(c.order for c in record.commits if not _may_be_forgotten(record, c))
    for number, times in twice.items():
        if number is not None and times > 1 and record.recorded:
            yield Case(f"order {number} was recorded {times} times by the nodes")


def _may_be_forgotten(record: Record, commit: Commit) -> bool:
    """Whether the database may have forgotten it, as after a failover, and given its number to
    another one: it did not end, and left its buyer in doubt, or its buyer was answered with this
    order and does not have it, which is a `lost_ack`."""
    key, order = commit.attempt, commit.order
    if order in record.acknowledged.get(key, ()) and order != record.number_of.get(key):
        return True
    asked = record.requests_by_key.get(key, ())
    return commit.done_at is None and any(
        r.covers(commit.begun_at) and r.type == "info" for r in asked
    )


def _unlike(record: Record, order: Mapping[str, Any], answers: Sequence[Request]) -> str:
    """How an order differs from what was asked for, recorded or answered; empty if it does not."""
    key, commit = str(order["key"]), record.commit_of.get(order["order"])
    seen, sale, product = order.get("stock_seen"), record.sale, record.product
    if commit is not None and record.recorded:
        if None not in (commit.amount, seen) and commit.amount != seen:
            return f"says that {seen} were left, and its node read {commit.amount}"
        if sale and commit.sale != sale:
            return f"is of sale {sale}, and its node sold in {commit.sale}"
    for answer in answers:
        if None not in (answer.stock_seen, seen) and answer.stock_seen != seen:
            return f"was sold out of {seen}, and its buyer was answered {answer.stock_seen}"
        fenced = record.evidence.fenced and not answer.replayed
        if fenced and answer.fence != order.get("fence"):
            return f"has fence {order.get('fence')}, and its buyer was answered {answer.fence}"
        found = "" if commit is None or commit.hold is None else commit.hold.release_outcome
        if found and answer.released not in ("", found) and not answer.replayed:
            return f"was released: {found}, and its buyer was answered {answer.released}"
        if sale and answer.sold_in not in (None, sale):
            return f"is of sale {sale}, and its buyer was answered {answer.sold_in}"
    if order.get("buyer", key.rpartition("/")[2]) != key.rpartition("/")[2]:
        return f"is {order['buyer']}'s, and its key {key}'s"
    if product and order.get("product", product) != product:
        return f"is of {order['product']}, and {product} was asked for"
    return ""


@rule("wrong_time")
def wrong_time(record: Record) -> Iterator[Case]:
    """The times of orders are no further apart than the requests, where nobody turns a clock."""
    sent = [request.sent_at for request in record.requests]
    ended = [request.answered_at or request.sent_at for request in record.requests]
    if not (record.is_own_shop and record.undisturbed and sent):
        return
    dated = [(read_time(order), order["order"]) for order in record.orders if "time" in order]
    times = sorted(dated, key=itemgetter(0))  # an order without a number has a text in its place
    longest = (max(ended) - min(sent)) / 1e9 + CLOCKS_APART_SECONDS
    if times and times[-1][0] - times[0][0] > longest:
        (first, early), (last, late) = times[0], times[-1]
        yield Case(
            f"the times of orders {early} and {late} are {last - first:.0f} s apart, and the rush "
            f"took {longest - CLOCKS_APART_SECONDS:.1f} s"
        )


def read_time(order: Mapping[str, Any]) -> float:
    """Return the time of an order in seconds since the epoch; 0 where it is no time."""
    try:
        return datetime.fromisoformat(order["time"]).timestamp()
    except ValueError:
        return 0.0


@rule("commit_order", voids=True)
def commit_order(record: Record) -> Iterator[Case]:
    """Orders are committed in the order of their numbers: each buyer of a product writes its row
    first, and nobody else may write that before the commit. A node's clock that is wrong shows.

    Where buyers write different rows, purchases overlap, and their numbers say nothing of their
    commits. Then an order that was answered before the stock was read for another one has the
    smaller number.
    """
    if not record.evidence.numbered:
        return
    if not record.evidence.one_row:
        yield from _read_after_a_later_one(record)
        return
    begun = {number: commit.begun_at for number, commit in record.commit_of.items()}
    for first, second in pairwise(o for o in record.committed if o["order"] in begun):
        early = begun[first["order"]] - begun[second["order"]]
        if early >= 0:
            what = f"was about to be committed {early / 1e6:.1f} ms before order {first['order']}"
            yield Case(f"order {second['order']} {what} was", first["key"], second["key"])


def _read_after_a_later_one(record: Record) -> Iterator[Case]:
    """The orders whose buyers were answered before the stock was read for one with a smaller
    number."""
    answered = {r.order: r.answered_at for r in record.requests if r.type == "ok" and r.answered_at}
    last_read = -1
    of: Mapping[str, Any] = {}
    for order in record.committed:
        commit = record.commit_of.get(order["order"])
        when = answered.get(order["order"])
        if when is not None and when < last_read:
            yield Case(
                f"order {order['order']} was answered {(last_read - when) / 1e6:.1f} ms before the "
                f"stock was read for order {of['order']}",
                *(of["key"], order["key"]),
            )
        if commit is not None and commit.read_at is not None and commit.read_at > last_read:
            last_read, of = commit.read_at, order
