"""The pure function that decides which promises of a batch are kept."""

import pytest

from shop.reserve.promises import Promise
from shop.reserve.settle import Ending, OrderIdentity, decide_endings

SALE = 7


def make_promise(number: int, key: str | None) -> Promise:
    """Return a promise of the order `number` to this key. Its id on the stream is `e<number>`."""
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


def identity_of(key: str | None, fingerprint: str | None = None) -> OrderIdentity:
    """Return the key and fingerprint of an order, by default those of make_promise(..., key)."""
    return key, fingerprint or f"request of {key}"


@pytest.mark.parametrize(
    ("keys", "identity_by_number", "units_left", "endings", "written_orders"),
    [
        (["a", "b"], {}, 2, {}, [1, 2]),
        ([None, None], {}, 2, {}, [1, 2]),
        (["a", "b"], {}, 1, {"e2": Ending.BROKEN}, [1]),
        (["a"], {}, 0, {"e1": Ending.BROKEN}, []),
        (["a"], {1: identity_of("a")}, 0, {"e1": Ending.KEPT}, []),
        ([None], {1: identity_of(None)}, 0, {"e1": Ending.KEPT}, []),
        (["a"], {1: identity_of("b")}, 5, {"e1": Ending.BROKEN}, []),
        (["a"], {1: identity_of("a", "another request")}, 5, {"e1": Ending.BROKEN}, []),
        (["a", "b"], {9: identity_of("a")}, 1, {"e1": Ending.AGAIN}, [2]),
        (["a", "a", "b"], {}, 2, {"e2": Ending.AGAIN}, [1, 3]),
        (["a", None], {9: identity_of(None)}, 2, {}, [1, 2]),
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
    """Some promises get their ending at once; the orders of all others are to be written.

    keys                the key of each promise; the promises have the order numbers 1, 2, ...
    identity_by_number  the key and fingerprint of each order that already exists
    endings             the endings by the promises' ids on the stream: e1, e2, ...
    written_orders      the numbers of the orders that are to be written
    """
    promises = [make_promise(number, key) for number, key in enumerate(keys, start=1)]
    decision = decide_endings(promises, identity_by_number, {SALE: units_left})
    assert decision.endings == endings
    assert [promise.order for promise in decision.promises_to_write] == written_orders
    not_kept = [ending for ending in endings.values() if ending is not Ending.KEPT]
    assert len(decision.problems) == len(not_kept), "each broken promise should have a message"


def test_promise_of_an_unknown_sale_is_broken() -> None:
    """A sale that is missing in `units_left` has no unit left."""
    promise = make_promise(1, "a")
    decision = decide_endings([promise], identity_by_number={}, units_left={})
    assert decision.endings == {promise.entry: Ending.BROKEN}
