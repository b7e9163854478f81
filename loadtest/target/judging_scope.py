"""The scope of a verdict on a target: what it is based on, and what it leaves open.

A target may show less than the judge can use: only the number of its orders, no stock, no
idempotency keys.
"""


def describe_judging_scope(
    *, repeatable: bool, lists_orders: bool, shows_stock: bool, matched_by_number: int = 0
) -> dict[str, list[str]]:
    """Return phrases on what the verdict is based on, and on what it leaves open.

    They are the fields `judged` and `not_judged` of a run.

    repeatable         whether a buyer whose answer was lost may ask again
    lists_orders       whether orders() returned a list
    shows_stock        whether stock() returned a number
    matched_by_number  how many orders were matched to a buyer by the number in an answer
    """
    judged = ["how many orders there are, compared with the units"]
    not_judged = []
    if lists_orders:
        judged.append("every answer, compared with the order of its buyer")
    else:
        judged.append("how many answers said sold, compared with the number of orders")
        not_judged.append(
            "which buyer has which order, since orders() returns a number: an order for the wrong "
            "buyer, or two for one buyer, may go unseen"
        )
    if shows_stock:
        judged.append("the stock left, compared with the orders")
    else:
        not_judged.append("lost updates of the stock, since there is no stock()")
    retry_phrase = "asking again after an answer that was lost"
    if repeatable:
        judged.append(retry_phrase)
    else:
        not_judged.append(f"{retry_phrase}, since repeatable is False: no idempotency key")
    if matched_by_number == 1:
        judged.append("1 order names no buyer of the rush: it is known by the number in the answer")
    elif matched_by_number:
        judged.append(
            f"{matched_by_number} orders name no buyer of the rush: they are known by the number "
            "in the answer"
        )
    return {"judged": judged, "not_judged": not_judged}
