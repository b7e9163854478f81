"""The rules over orders and answers: each finds what no correct sale shows, with the evidence.

No rule calls a correct sale broken: a missing answer may have been any, and a request may take
effect at any time after it was sent. A sale that breaks one of these is not exact, because its
record is wrong.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from loadtest.judge.finding import Case, of_order
from loadtest.judge.intervals import group_by
from loadtest.judge.rule import rule
from loadtest.judge.sale_record import Record

#: What to do about one number for two orders where that is no violation.
PRIMARY_KEY = "; where each buyer's orders are numbered from 1, let orders() name the primary key"


@rule("lost_update")
def lost_update(record: Record) -> Iterator[Case]:
    """Conservation: every order took one unit off the shelf, and nothing else took one."""
    if lost := record.lost_updates:
        one, gone = abs(lost) == 1, record.units - lost
        erased = "decrement was erased" if one else "decrements were erased"
        unsold = "unit went without an order" if one else "units went without an order"
        units = "1 unit" if gone == 1 else f"{gone} units"
        which = erased if lost > 0 else unsold
        yield Case(f"{len(record.orders)} orders took {units}: {abs(lost)} {which}")


@rule("wrong_amount")
def wrong_amount(record: Record) -> Iterator[Case]:
    """Each order is of one unit: nobody can ask for another number."""
    for order in record.orders:
        if (units := order.get("amount", 1)) != 1:
            yield of_order(order, f"is of {units} units, and one was asked for")


@rule("double_number")
def double_number(record: Record) -> Iterator[Case]:
    """No two buyers have orders with one number."""
    keys_of = group_by(record.orders, lambda order: order["order"])
    for number, orders in keys_of.items():
        keys = list(dict.fromkeys(str(order["key"]) for order in orders))
        if len(keys) > 1:
            hint = PRIMARY_KEY if _may_be_numbered_by_buyer(record) else ""
            owners = " and ".join(key or "no buyer" for key in keys[:3])
            yield Case(f"order {number} is {owners}'s{hint}", *keys)


def _may_be_numbered_by_buyer(record: Record) -> bool:
    """Return whether another shop may number the orders of each buyer from 1."""
    numbers = [str(order["order"]) for order in record.orders]
    return not record.is_own_shop and any(re.search(r"(?<!\d)0*1\Z", text) for text in numbers)


@rule("lost_ack")
def lost_ack(record: Record) -> Iterator[Case]:
    """An order that an answer named exists, and belongs to the buyer who got the answer."""
    there = {(order["key"], order["order"]) for order in record.orders}
    owner_of = {order["order"]: order["key"] for order in reversed(record.orders)}
    for key, numbers in record.acknowledged.items():
        for number in numbers:
            if (key, number) in there:
                continue
            named = "sold, without a number" if number is None else f"with order {number}"
            known, owner = record.number_of.get(key), owner_of.get(number)
            instead = f"that is {owner}'s" if owner else "there is none"
            if known is not None:
                instead = f"it has order {known}"
            yield Case(f"{key} was answered {named}; {instead}", key)


@rule("false_sold_out")
def false_sold_out(record: Record) -> Iterator[Case]:
    """Nobody is answered `sold_out` before all units can be gone, or while having an order."""
    gone = _could_have_gone(record)
    for request in record.requests:
        if request.outcome != "sold_out":
            continue
        key, units = request.attempt, bisect_left(gone, request.answered_at or inf)
        if units < record.initial_stock:
            of = f"{units} of {record.initial_stock} units had gone"
            yield Case(f"{key} was answered sold_out when at most {of}", key)
        elif key in record.number_of:
            yield Case(f"{key} was answered sold_out and has order {record.number_of[key]}", key)


def _could_have_gone(record: Record) -> list[float]:
    """The earliest time at which each order's unit can have gone, sorted: when the counter reserved
    it, else when its node read the stock, else when the node began to commit, else when its buyer
    first asked, else any time."""
    begun: dict[str, float] = {}
    for event in record.events:
        if event["f"] == "reserve":
            begun.setdefault(event["attempt"], event["t"])
    for commit in record.commits:
        begun.setdefault(
            commit.attempt, commit.begun_at if commit.read_at is None else commit.read_at
        )
    for request in record.requests:
        begun.setdefault(request.attempt, request.sent_at)
    return sorted(begun.get(order["key"], -inf) for order in record.orders)


@rule("false_refusal")
def false_refusal(record: Record) -> Iterator[Case]:
    """A refused request sold nothing, and a replay needs an earlier order. For `sold_out` to a
    buyer who has an order see false_sold_out."""
    for number, commit in record.commit_of.items():
        key = commit.attempt
        asked = [r for r in record.requests_by_key.get(key, ()) if r.covers(commit.begun_at)]
        if asked and all(request.type == "fail" for request in asked):
            refusal = f"was answered {asked[0].outcome} by the request that sold order {number}"
            yield Case(f"{key} {refusal}", key)
    for key, asked in record.requests_by_key.items():
        open_ = [request for request in asked if request.type != "fail"]
        if open_ and open_[0].replayed:
            yield Case(f"{key} was only ever refused, and then answered with an earlier order", key)
        sold_out = any(request.outcome == "sold_out" for request in asked)
        if not open_ and not sold_out and key in record.number_of:
            yield Case(f"{key} was refused and has order {record.number_of[key]}", key)


@rule("ghost_order")
def ghost_order(record: Record) -> Iterator[Case]:
    """Every order has the key of somebody who asked."""
    for order in record.orders:
        if order["key"] not in record.last:
            yield of_order(order, _describe_stranger(record, order))


def _describe_stranger(record: Record, order: Mapping[str, Any]) -> str:
    """Return a phrase about an order that belongs to no buyer who asked."""
    if record.is_own_shop:
        return f"has the key {order['key']}, which nobody sent"
    if not order["key"]:
        return "names no buyer, and no answer is about it"
    return f"is {order['key']}'s, who is no buyer of the rush"


@rule("double_order")
def double_order(record: Record) -> Iterator[Case]:
    """One attempt has one order, and its answers name one."""
    times = Counter(str(order["key"]) for order in record.orders)
    for key in dict.fromkeys([*times, *record.acknowledged]):
        if not key:  # several orders may name no buyer
            continue
        answered = record.acknowledged.get(key, set())
        if times[key] > 1 or len(answered) > 1:
            numbers = {order["order"] for order in record.orders if order["key"] == key}
            numbers |= {number for number in answered if number is not None}
            shown = ", ".join(sorted(map(str, numbers), key=lambda text: (len(text), text)))
            yield Case(f"{key} has the orders {shown}", key)
