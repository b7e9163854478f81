"""decide_endings(): which promises of a batch get an order.

A promise is a unit that Redis has sold under the strategy `reserve`. Its order is written to
PostgreSQL later, together with those of other promises (shop/reserve/settle.py).
"""

import pytest

from shop.reserve.promises import Promise
from shop.reserve.settle import Ending, OrderIdentity, decide_endings

#: The number of the sale of all promises.
SALE = 7


def make_promise(number: int, key: str | None) -> Promise:
    """Return a promise, a unit that Redis has sold to a buyer with this Idempotency-Key.

    number  the number of the order; the promise's id on the Redis stream is `e<number>`
    """
    return Promise(
        order=number,
        sale=SALE,
        product=1,
        product_name="apple",
        buyer="ada",
        key=key,
        fingerprint=f"request of {key}",
        stock_seen=3,
        entry=f"e{number}",
    )


def make_identity(key: str | None, fingerprint: str | None = None) -> OrderIdentity:
    """Return the key and fingerprint of an order.

    The default fingerprint is that of make_promise(..., key): the order fulfils this promise.
    """
    return key, fingerprint or f"request of {key}"


@pytest.mark.parametrize(
    ("keys", "identity_by_number", "units_left", "endings", "written_orders"),
    [
        (["a", "b"], {}, 2, {}, [1, 2]),
        ([None, None], {}, 2, {}, [1, 2]),
        (["a", "b"], {}, 1, {"e2": Ending.BROKEN}, [1]),
        (["a"], {}, 0, {"e1": Ending.BROKEN}, []),
        (["a"], {1: make_identity("a")}, 0, {"e1": Ending.KEPT}, []),
        ([None], {1: make_identity(None)}, 0, {"e1": Ending.KEPT}, []),
        (["a"], {1: make_identity("b")}, 5, {"e1": Ending.BROKEN}, []),
        (["a"], {1: make_identity("a", "another request")}, 5, {"e1": Ending.BROKEN}, []),
        (["a", "b"], {9: make_identity("a")}, 1, {"e1": Ending.KEY_HAS_ORDER}, [2]),
        (["a", "a", "b"], {}, 2, {"e2": Ending.KEY_HAS_ORDER}, [1, 3]),
        (["a", None], {9: make_identity(None)}, 2, {}, [1, 2]),
    ],
    ids=[
        "a unit for each",
        "without keys",
        "the last unit goes to the oldest promise",
        "no unit is left",
        "settled before",
        "settled before, without a key",
        "the number belongs to another buyer's order",
        "the number belongs to another request's order",
        "the key already has an order",
        "two promises to one key",
        "an order without a key fulfils no other promise",
    ],
)
def test_promises_are_kept_while_units_are_left(
    keys: list[str | None],
    identity_by_number: dict[int, OrderIdentity],
    units_left: int,
    endings: dict[str, Ending],
    written_orders: list[int],
) -> None:
    """A promise gets an order as long as a unit is left, unless it or its key has an order already.

    A promise is a unit that Redis has sold to a buyer. Its ending is KEPT if its order exists,
    BROKEN if it cannot get an order, and KEY_HAS_ORDER if its key has another order. A promise
    whose order is still to be written has no ending yet.

    keys                the Idempotency-Key of each promise; their order numbers are 1, 2, ...
    identity_by_number  order number -> key and fingerprint, for the orders that already exist
    units_left          the units of the sale that are left in the database
    endings             the expected endings, by the promises' ids: e1, e2, ...
    written_orders      the numbers of the orders that are still to be written
    """
    promises = [make_promise(number, key) for number, key in enumerate(keys, start=1)]
    decision = decide_endings(promises, identity_by_number, {SALE: units_left})
    assert decision.endings == endings
    assert [promise.order for promise in decision.promises_to_write] == written_orders
    endings_without_order = [ending for ending in endings.values() if ending is not Ending.KEPT]
    assert len(decision.problems) == len(endings_without_order), (
        "each promise that gets no order should have a message"
    )


def test_promise_of_an_unknown_sale_is_broken() -> None:
    """A promise of a sale that is missing in `units_left` gets no order: its ending is BROKEN."""
    promise = make_promise(1, "a")
    decision = decide_endings([promise], identity_by_number={}, units_left={})
    assert decision.endings == {promise.entry: Ending.BROKEN}
