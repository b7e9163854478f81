"""The scope of a verdict on a target: what it is based on, and what it leaves open.

A target may show less than the judge can use: only the number of its orders, no stock, no
idempotency keys.
"""


def describe_judging_scope(
    *, repeatable: bool, listed: bool, shows_stock: bool, matched_by_number: int = 0
) -> dict[str, list[str]]:
    """Return what the verdict on a target is based on, and what it leaves open.

    Returns phrases, as the fields `judged` and `not_judged` of a run.

    repeatable         whether a buyer whose answer was lost may ask again
    listed             whether orders() returned a list
    shows_stock        whether stock() returned a number
    matched_by_number  how many orders were matched to a buyer by the number in an answer
    """
    orders = "how many orders there are, compared with the units"
    totals = "how many answers said sold, compared with the number of orders"
    retries = "asking again after an answer that was lost"
    # For each aspect: whether it is judged, the phrase if it is, and the phrase if it is not.
    aspects = (
        (
            listed,
            "every answer, compared with the order of its buyer",
            "which buyer has which order, since orders() returns a number: an order for the wrong "
            "buyer, or two for one buyer, may go unseen",
        ),
        (
            shows_stock,
            "the stock left, compared with the orders",
            "lost updates of the stock, since there is no stock()",
        ),
        (repeatable, retries, f"{retries}, since repeatable is False: no idempotency key"),
    )
    judged = [orders]
    if not listed:
        judged.append(totals)
    judged += [basis for is_judged, basis, _ in aspects if is_judged]
    if matched_by_number == 1:
        judged.append("1 order names no buyer of the rush: it is known by the number in the answer")
    elif matched_by_number:
        judged.append(
            f"{matched_by_number} orders name no buyer of the rush: they are known by the number "
            "in the answer"
        )
    not_judged = [gap for is_judged, _, gap in aspects if not is_judged]
    return {"judged": judged, "not_judged": not_judged}
