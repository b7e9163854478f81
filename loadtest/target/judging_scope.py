"""The scope of a verdict on a target, a third-party shop: what was judged, and what was not.

A target may show less than the judge can use: only the number of its orders, no stock, no
idempotency keys.
"""


def describe_judging_scope(
    *, repeatable: bool, lists_orders: bool, shows_stock: bool, matched_by_number: int = 0
) -> dict[str, list[str]]:
    """Return the fields `judged` and `not_judged` of a run: phrases on what was judged or not.

    repeatable         whether a buyer whose answer was lost may repeat its request
    lists_orders       whether orders() returned a list
    shows_stock        whether stock() returned a number
    matched_by_number  how many orders were matched to a buyer by the number in an answer
    """
    judged = ["how many orders there are, compared with the units"]
    not_judged = []
    if lists_orders:
        judged.append("every answer, compared with the order of its buyer")
    else:
        judged.append("how many answers were `sold`, compared with the number of orders")
        not_judged.append(
            "which buyer has which order, since orders() returns a number: an order for the wrong "
            "buyer, or two for one buyer, may remain undetected"
        )
    if shows_stock:
        judged.append("the stock left, compared with the orders")
    else:
        not_judged.append("lost updates of the stock, since there is no stock()")
    retry_phrase = "repeating a request whose answer was lost"
    if repeatable:
        judged.append(retry_phrase)
    else:
        not_judged.append(f"{retry_phrase}, since repeatable is False: no idempotency key")
    if matched_by_number == 1:
        judged.append("1 order has no buyer of the rush: it was matched by the number in an answer")
    elif matched_by_number:
        judged.append(
            f"{matched_by_number} orders have no buyer of the rush: they were matched by the "
            "numbers in answers"
        )
    return {"judged": judged, "not_judged": not_judged}
