"""The rules on the record itself: nothing in it is missing, and nothing contradicts the rest.

A run whose nodes recorded shows for each order which request it was sold in, under which lock and
in which sale. A record with gaps or contradictions proves nothing: with such a finding only an
oversell can be concluded, which the orders show alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from loadtest.judge.history import DAMAGED, Event
from loadtest.judge.intervals import Commit, Request
from loadtest.judge.sale_record import Finding, Record, more

#: Outcomes that only a node gives that has begun the purchase.
LOOKED_AT = frozenset({"sold", "sold_out", "busy", "lost", "closed"})


def broken_history(record: Record) -> Finding | None:
    """Every line of the history is an event."""
    damaged = [event for event in record.history.events if event["by"] == DAMAGED]
    if not damaged:
        return None
    return Finding("broken_history", damaged[0].get("what", "") + more(damaged), voids=True)


def wrong_stock(record: Record) -> Finding | None:
    """The sale opened with as many units as were asked for."""
    if record.opened == record.asked.stock:
        return None
    what = f"the sale opened with {record.opened} units, and {record.asked.stock} were asked for"
    return Finding("wrong_stock", what, voids=True)


def unrecorded(record: Record) -> Finding | None:
    """A node recorded how it came to each order and to each answer."""
    if not record.asked.recorded:
        return None
    found = [
        (str(order["key"]), f"order {order['order']} was committed by no node that recorded it")
        for order in record.orders
        if order["order"] not in record.commit_of
    ]
    nodes = _events_of_nodes(record)
    for request in record.requests:
        if request.outcome in LOOKED_AT and request.answered is not None:
            missing = _missing(request, nodes.get(request.attempt, []))
            if missing:
                found.append((request.attempt, f"{request.attempt} was answered {missing}"))
    if not found:
        return None
    keys = tuple(key for key, _ in found)
    return Finding("unrecorded", found[0][1] + more(found), keys, voids=True)


def _missing(request: Request, events: list[Event]) -> str:
    """What the nodes failed to record of a request that was answered."""
    assert request.answered is not None
    times = [event["t"] for event in events]
    served = events[bisect_left(times, request.sent) : bisect_right(times, request.answered)]
    kinds = {event["f"] for event in served}
    if not kinds:
        return f"{request.outcome}, and no node recorded its request"
    if "begins" not in kinds:
        return f"{request.outcome}, and no node recorded which strategy it ran"
    if request.outcome == "sold_out" and not kinds & {"after_read", "reserve"}:
        return "sold_out, and no node had looked at the stock"
    return ""


def outside_request(record: Record) -> Finding | None:
    """What a node records of a purchase happens between a request of it and its answer, and an
    answer comes after its request."""
    if not record.asked.recorded:
        return None
    asking: set[str] = set()
    for event in record.history.events:
        if event["by"] == "buyer" and event["type"] == "invoke":
            asking.add(event["attempt"])
        elif event["by"] == "buyer" and event["attempt"] not in asking:
            key = event["attempt"]
            what = f"{key} was answered {event.get('outcome')} before it had asked"
            return Finding("outside_request", what, (key,), voids=True)
    for key, events in _events_of_nodes(record).items():
        asked = record.requests_of.get(key)
        if asked is None:
            what = f"a node recorded {events[0]['f']} of {key}, and nobody sent that key"
            return Finding("outside_request", what, (key,), voids=True)
        for event in events:
            if not any(request.covers(event["t"]) for request in asked):
                nearest = min(abs(event["t"] - request.sent) for request in asked)
                what = (
                    f"node {event.get('node', '')} recorded {event['f']} of {key} outside of its "
                    f"requests, {nearest / 1e6:.1f} ms from one"
                )
                return Finding("outside_request", what, (key,), voids=True)
    return None


def foreign_key(record: Record) -> Finding | None:
    """Only the buyers who were sent asked, and were answered: whoever else bought here did so under
    a key that the run did not give out."""
    if not record.asked.buyers:
        return None
    sent = set(record.asked.buyers)
    found = [buyer.key for buyer in record.buyers if buyer.key not in sent]
    if not found:
        return None
    what = f"{found[0]} asked, or was answered, and is none of the buyers who were sent"
    return Finding("foreign_key", what + more(found), tuple(found), voids=True)


def _events_of_nodes(record: Record) -> dict[str, list[Event]]:
    """By attempt, in the order of their times."""
    found: dict[str, list[Event]] = {}
    for event in record.history.events:
        if event["by"] == "node" and "attempt" in event:
            found.setdefault(event["attempt"], []).append(event)
    return found


def wrong_lock(record: Record) -> Finding | None:
    """Everybody was sold under the strategy, and by the lock, that the buyer asked for."""
    lock, product = record.asked.lock, record.asked.product
    if not lock:
        return None
    found = [
        (str(order["key"]), f"order {order['order']} was sold under {order['lock']}")
        for order in record.orders
        if order.get("lock", lock) != lock
    ]
    for event in record.history.events:
        if event["by"] != "node":
            continue
        if event["f"] == "begins" and event.get("lock", lock) != lock:
            found.append((event["attempt"], f"{event['attempt']} was served by {event['lock']}"))
        elif product and event.get("product", product) != product:
            found.append((event["attempt"], f"{event['attempt']} was sold {event['product']}"))
        elif product and event.get("lock_name", f"{lock}:{product}") != f"{lock}:{product}":
            found.append((event["attempt"], f"{event['attempt']} took {event['lock_name']}"))
    if not found:
        return None
    what = f"{found[0][1]}, and {lock} was asked for{more(found)}"
    return Finding("wrong_lock", what, tuple(key for key, _ in found), voids=True)


def _is_in_doubt(record: Record, commit: Commit) -> bool:
    """Whether it did not end, and left its buyer in doubt: a database that forgot it, as after a
    failover, may give its number to another one."""
    asked = record.requests_of.get(commit.attempt, ())
    return commit.done is None and any(r.covers(commit.begun) and r.type == "info" for r in asked)


def contradiction(record: Record) -> Finding | None:
    """What the database has of an order is what its node recorded of it and its buyer was answered:
    the product, the sale, the stock seen, the fence, and who bought."""
    answers: dict[int | None, list[Request]] = {}
    for request in record.requests:
        if request.type == "ok":
            answers.setdefault(request.order, []).append(request)
    for order in record.orders:
        what = _unlike(record, order, answers.get(order["order"], []))
        if what:
            keys = (str(order["key"]),)
            return Finding("contradiction", f"order {order['order']} {what}", keys, voids=True)
    for event in record.history.events if record.asked.sale else ():
        sale = event.get("sale")
        if event["by"] == "node" and sale not in (None, record.asked.sale):
            key = event["attempt"]
            what = f"{key} came for sale {record.asked.sale}, and {event['f']} was of sale {sale}"
            return Finding("contradiction", what, (key,), voids=True)
    numbered = [c for c in record.commits if c.order is not None and not _is_in_doubt(record, c)]
    twice = Counter(commit.order for commit in numbered)
    for number, times in twice.items():
        if times > 1 and record.asked.recorded:
            what = f"order {number} was recorded {times} times by the nodes"
            return Finding("contradiction", what, voids=True)
    return None


def _unlike(record: Record, order: Mapping[str, Any], answers: Sequence[Request]) -> str:
    """How an order differs from what was asked for, recorded or answered; empty if it does not."""
    key, commit = str(order["key"]), record.commit_of.get(order["order"])
    ways = [_unlike_its_answer(record, order, answer) for answer in answers]
    if commit is not None and record.asked.recorded:
        ways.insert(0, _unlike_its_node(record, order, commit))
    if what := next(filter(None, ways), ""):
        return what
    if order.get("buyer", key.rpartition("/")[2]) != key.rpartition("/")[2]:
        return f"is {order['buyer']}'s, and its key {key}'s"
    product = record.asked.product
    if product and order.get("product", product) != product:
        return f"is of {order['product']}, and {product} was asked for"
    return ""


def _unlike_its_node(record: Record, order: Mapping[str, Any], commit: Commit) -> str:
    """How an order differs from what its node recorded, or empty."""
    seen = order.get("stock_seen")
    if None not in (commit.amount, seen) and commit.amount != seen:
        return f"says that {seen} were left, and its node read {commit.amount}"
    if record.asked.sale and commit.sale != record.asked.sale:
        return f"is of sale {record.asked.sale}, and its node sold in {commit.sale}"
    return ""


def _unlike_its_answer(record: Record, order: Mapping[str, Any], answer: Request) -> str:
    """How an order differs from what its buyer was answered, or empty."""
    seen = order.get("stock_seen")
    if None not in (answer.stock_seen, seen) and answer.stock_seen != seen:
        return f"was sold out of {seen}, and its buyer was answered {answer.stock_seen}"
    if record.evidence.fenced and not answer.replayed and answer.fence != order.get("fence"):
        return f"has fence {order.get('fence')}, and its buyer was answered {answer.fence}"
    if record.asked.sale and answer.sold_in not in (None, record.asked.sale):
        return f"is of sale {record.asked.sale}, and its buyer was answered {answer.sold_in}"
    return ""


def commit_order(record: Record) -> Finding | None:
    """Orders are committed in the order of their numbers: each buyer of a product writes its row
    first, and nobody else may write that before the commit. A node's clock that is wrong shows.

    Where buyers write different rows, purchases overlap, and their numbers say nothing of their
    commits. Then an order that was answered before the stock was read for another one has the
    smaller number.
    """
    if not record.evidence.numbered:
        return None
    if not record.evidence.one_row:
        return _read_after_a_later_one(record)
    begun = [
        (order, record.commit_of[order["order"]])
        for order in record.committed
        if order["order"] in record.commit_of
    ]
    for (first, one), (second, other) in pairwise(begun):
        if other.begun <= one.begun:
            what = (
                f"order {second['order']} was about to be committed "
                f"{(one.begun - other.begun) / 1e6:.1f} ms before order {first['order']} was"
            )
            return Finding("commit_order", what, (first["key"], second["key"]), voids=True)
    return None


def _read_after_a_later_one(record: Record) -> Finding | None:
    """The first order whose buyer was answered before the stock was read for an order with a
    smaller number."""
    answered = {r.order: r.answered for r in record.requests if r.type == "ok" and r.answered}
    last_read = -1
    of: Mapping[str, Any] = {}
    for order in record.committed:
        commit = record.commit_of.get(order["order"])
        when = answered.get(order["order"])
        if when is not None and when < last_read:
            what = (
                f"order {order['order']} was answered {(last_read - when) / 1e6:.1f} ms before the "
                f"stock was read for order {of['order']}"
            )
            return Finding("commit_order", what, (of["key"], order["key"]), voids=True)
        if commit is not None and commit.read_at is not None and commit.read_at > last_read:
            last_read, of = commit.read_at, order
    return None
