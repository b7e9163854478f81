"""The check of lesson 8: a buyer who lost the lock sells nothing.

Two buyers, A and B, buy with the participant's code. A Refusal is the reason why this code is not
accepted; lessons.toml explains its code, such as "fence-at-write".
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType

from locks import LossReason
from shop.models import Product, PurchaseHistory
from shop.ops.redis import locks_client
from shop.sale import opening
from shop.sale.points import point_reached
from shop.sale.reports import sale_report
from shop.schedules.interleaving import Interleaving
from shop.schedules.two_buyers import signal_before_commit
from workshop import kit
from workshop.checks.purchases import (
    AMPLE_STOCK,
    OTHER_PRODUCT,
    OTHER_STOCK,
    PRODUCT,
    check_second_buyer,
    count_orders_and_stock,
    count_statements_of_a_purchase,
    describe_steps,
    has_unsent_row_lock,
    install_as_mine,
    interrupt_before_statement,
    open_sale,
    run_and_describe_outcome,
    run_unless_blocked,
    statements,
    try_to_buy,
)
from workshop.refusal import Refusal

#: The outcomes that a buyer may get after it lost its lock. They mean that nothing was sold, and
#: that the buyer should try again.
OUTCOMES_OF_LATE_HOLDER = ("lost", "busy")
#: Codes of refusals that a missing row lock can cause. If the participant's code calls
#: select_for_update() but reads no rows from it, no SELECT ... FOR UPDATE is sent. Then the refusal
#: gets the code of that mistake, "lock-not-sent", instead.
CODES_OF_A_MISSING_ROW_LOCK = ("compared-in-python", "checks-then-writes", "fence-at-write")


def check_fence(module: ModuleType) -> Refusal | None:
    """Return a refusal for the first mistake in a purchase that checks the fence, or None.

    A fence is a number that each new holder of the lock gets, higher than those of earlier holders.
    In lessons.toml, the name of this check is `fence.fence`.
    """
    install_as_mine(module)
    first_refusal = (
        _check_sequential_buyers()
        or _check_other_product()
        or _check_every_pause()
        or _check_two_reads()
        or check_second_buyer()
    )
    if first_refusal is None:
        return None
    if first_refusal.code in CODES_OF_A_MISSING_ROW_LOCK and has_unsent_row_lock():
        # The code called select_for_update() but did not read the rows, so no row was locked.
        return Refusal("lock-not-sent", first_refusal.details, first_refusal.story)
    return first_refusal


def _check_sequential_buyers() -> Refusal | None:
    """Return a refusal unless two buyers, one after the other, get a unit each."""
    sale = open_sale(2)
    outcomes = [try_to_buy(name) for name in "AB"]
    orders, stock_left = count_orders_and_stock(sale)
    if (orders, stock_left) == (2, 0):
        return None
    if orders == 2:
        return Refusal("stock-not-decremented", {"stock_left": stock_left, "orders": orders})
    return Refusal("refuses-everybody", {"first": outcomes[0], "second": outcomes[1]})


def _check_other_product() -> Refusal | None:
    """Return a refusal if a sale of one product changes the row of another product."""
    opening.restock(product=OTHER_PRODUCT, amount=OTHER_STOCK)
    # An earlier wrong version of the file may have written a fence.
    Product.objects.filter(name=OTHER_PRODUCT).update(fence=0)
    open_sale(1)
    try_to_buy("A")
    other_product = Product.objects.get(name=OTHER_PRODUCT)
    if other_product.amount != OTHER_STOCK:
        details = {"stock_left": other_product.amount, "stock": OTHER_STOCK}
        return Refusal("other-products", details)
    if other_product.fence:
        return Refusal("fence-of-other-products", {"fence": other_product.fence})
    return None


def _check_every_pause() -> Refusal | None:
    """Return a refusal if a purchase of buyer A goes wrong because A loses its lock in a pause.

    In each purchase A is paused once: just after it acquired the lock, before one of its
    statements, or before its COMMIT. _check_pause_at() explains when a purchase goes wrong.
    """
    open_sale(AMPLE_STOCK)
    statement_count = count_statements_of_a_purchase()
    # `acquired`, `paused` and `at_commit` are injection points, at which a check can pause a buyer.
    if refusal := _check_pause_at("acquired"):
        return refusal
    for number in range(1, statement_count + 1):
        if refusal := _check_pause_at("paused", before_statement=number):
            return refusal
    return _check_pause_at("at_commit")


def _check_pause_at(point_name: str, *, before_statement: int = 0) -> Refusal | None:
    """Pause buyer A during its purchase, and return a refusal if the purchase goes wrong.

    During the pause A loses its lock, and buyer B buys if it can. A's purchase goes wrong if an
    update is lost, if A sells although B has sold, or if A's outcome is neither `sold` nor one of
    OUTCOMES_OF_LATE_HOLDER. If A's purchase ends without a pause, return None.

    point_name        the injection point at which A is paused: `acquired`, `paused` or `at_commit`
    before_statement  for `paused`: the number of A's statement before which A is paused
    """
    sale = open_sale(AMPLE_STOCK)
    statements_of_a: list[str] = []

    def buy_with_pause() -> str:
        signal_before_commit()
        pause = partial(point_reached.send, "paused")
        with interrupt_before_statement(before_statement, pause) as sent_statements:
            try:
                return try_to_buy("A")
            finally:
                statements_of_a.extend(sent_statements)

    with Interleaving() as run:
        buyer_a = run.start("A", buy_with_pause)
        with suppress(AssertionError):  # the purchase ended without reaching the point
            buyer_a.run_to(point_name)
        if buyer_a.waits_at != point_name:
            return None  # A's purchase sent fewer statements than expected
        _end_newest_lease()
        buyer_b = run.start("B", partial(try_to_buy, "B"))
        b_has_sold = run_unless_blocked(buyer_b) and buyer_b.result == "sold"
        fence_of_b = kit.recent_leases[-1].fence
        fence_of_row = Product.objects.get(name=PRODUCT).fence
        outcome_of_a = run_and_describe_outcome(buyer_a.finish)
        buyer_b.finish()
    story = describe_steps(run.log)
    if sale_report(sale).lost_updates:
        return Refusal(_find_code_of_lost_update(statements_of_a, b_has_sold), {}, story)
    if b_has_sold and outcome_of_a == "sold":
        if point_name == "acquired":
            return _explain_late_sale(sale, fence_of_b, fence_of_row, story)
        statements_before_pause = statements_of_a  # all of them, if A was paused at the COMMIT
        if before_statement:
            statements_before_pause = statements_of_a[: before_statement - 1]
        # If A used the fence only before the pause, A could not see the higher fence of B.
        mentions_fence = any("fence" in statement for statement in statements_before_pause)
        code = "compared-in-python" if mentions_fence else "checks-then-writes"
        return Refusal(code, {}, story)
    if outcome_of_a not in (*OUTCOMES_OF_LATE_HOLDER, "sold"):
        return Refusal("not-lost", {"answer": outcome_of_a}, story)
    return None


def _find_code_of_lost_update(statements_of_a: Sequence[str], b_has_sold: bool) -> str:
    """Return the code of the refusal for a pause of buyer A that led to a lost update.

    b_has_sold  whether buyer B has sold during A's pause
    """
    compares_fence = any("fence" in text.partition(" WHERE ")[2] for text in statements_of_a)
    if compares_fence and not b_has_sold:
        # A's write compares the fence, but it blocked B until A had sold. Before that, both buyers
        # had read the same stock.
        return "fence-at-write"
    # A never compares the fence in the database, or does so only before the pause.
    return "checks-then-writes"


def _explain_late_sale(
    sale: int, fence_of_b: int | None, fence_of_row: int, story: Sequence[str]
) -> Refusal:
    """Return the refusal if buyer A bought after buyer B although A had lost its lock.

    A was paused after it had acquired the lock and before its first statement.

    sale          the number of the sale
    fence_of_b    the fence of B's lock
    fence_of_row  the fence in the product's row after B had bought
    story         the steps of A and B in words
    """
    fence_of_order = PurchaseHistory.objects.get(sale_id=sale, purchaser="A").fence
    # If the order has no fence, the participant's code may have written one to the product.
    written_fence = fence_of_row if fence_of_order is None else fence_of_order
    if not written_fence:
        return Refusal("trusts-the-lock", {}, story)
    fences_of_leases = [lease.fence for lease in kit.recent_leases]
    if written_fence not in fences_of_leases:
        return Refusal("clock-as-fence", {"fence": written_fence}, story)
    fence_of_a = fences_of_leases[-2]  # the last lease is B's
    details = {"fence": fence_of_a, "of_b": fence_of_b, "row": fence_of_row}
    uses_fence = any(_uses_fence_of_product(statement.text) for statement in statements)
    is_not_written = uses_fence and fence_of_row != fence_of_b
    return Refusal("fence-not-written" if is_not_written else "fence-not-compared", details, story)


def _uses_fence_of_product(text: str) -> bool:
    """Return whether an SQL statement reads, compares or updates the product's fence.

    An INSERT with a fence does not count: it writes the fence of an order.
    """
    words = text.casefold()
    return "fence" in words and words.startswith(("select", "update", "with"))


def _check_two_reads() -> Refusal | None:
    """Return a refusal if buyers A and B read the same stock and one erases the other's update.

    A reads, and then loses its lock. B reads, too, unless B is blocked. Then A writes, and then B.
    """
    sale = open_sale(AMPLE_STOCK)
    with Interleaving() as run:
        buyer_a = run.start("A", partial(try_to_buy, "A")).run_to("after_read")
        _end_newest_lease()
        buyer_b = run.start("B", partial(try_to_buy, "B"))
        run_unless_blocked(buyer_b, to="after_read")
        buyer_a.finish()
        buyer_b.finish()
    if sale_report(sale).lost_updates:
        return Refusal("fence-at-write", {}, describe_steps(run.log))
    return None


def _end_newest_lease() -> None:
    """Delete all locks and mark the newest lease as lost, as after a pause longer than the ttl."""
    locks_client().flushdb()
    kit.recent_leases[-1].mark_lost(LossReason.EXPIRED)
