"""The pure function that decides which promises of a batch are kept."""

import pytest

from shop.reserve.promises import Promise
from shop.reserve.settle import Ending, OrderIdentity, decide

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
        "another buyer has the number",
        "another request has the number",
        "the key has an order, and takes no unit",
        "two promises to one key",
        "orders without keys belong to no other promise",
    ],
)
def test_decision_about_each_promise_of_a_batch(
    keys: list[str | None],
    identity_by_number: dict[int, OrderIdentity],
    units_left: int,
    endings: dict[str, Ending],
    written_orders: list[int],
) -> None:
    """The endings of some promises are known at once; the orders of all others are written.

    keys                the key of each promise; the promises have the order numbers 1, 2, ...
    identity_by_number  the key and fingerprint of each order that already exists
    endings             the known endings, by the promises' ids on the stream: e1, e2, ...
    written_orders      the numbers of the orders that will be written
    """
    promises = [make_promise(number, key) for number, key in enumerate(keys, start=1)]
    decision = decide(promises, identity_by_number, {SALE: units_left})
    assert decision.endings == endings
    assert [promise.order for promise in decision.to_write] == written_orders
    not_kept = [ending for ending in endings.values() if ending is not Ending.KEPT]
    assert len(decision.problems) == len(not_kept), "one message for each promise that is not kept"


def test_promise_of_an_unknown_sale_is_broken() -> None:
    """`units_left` does not contain the sale, so no unit is left of it."""
    promise = make_promise(1, "a")
    decision = decide([promise], identity_by_number={}, units_left={})
    assert decision.endings == {promise.entry: Ending.BROKEN}
