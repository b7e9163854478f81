"""The verdict on a sale with buyers who got no final answer (neither `sold` nor `sold_out`).

It is `deadlock` if a lock stays locked after a fault, and otherwise `unknown`. In these sales the
lock has a ttl of 1 s by default, and the judge calls 3 ttls without a purchase a deadlock.
"""

from loadtest.tests.history_builder import HistoryBuilder, sequential_sale


def make_deadlocked_sale(*, end_ms: float) -> HistoryBuilder:
    """Return the history of a sale whose lock is never released.

    The victim is killed while it has the lock. The fault is healed (the killed node is started
    again) at 100 ms, but both rivals are refused, for the last time at `end_ms`.
    """
    sale = HistoryBuilder(stock=2)
    sale.request(0, "victim")
    sale.acquire(began_ms=1, granted_ms=2, key="victim")
    sale.add_fault(50, "fire", "process 12 killed")
    sale.answer(51, "victim", "unknown")
    sale.add_fault(100, "heal", "node A is back")
    for number in (1, 2):
        sale.request(90, f"rival-{number}")
        sale.answer(200, f"rival-{number}", "busy")
        sale.request(210, f"rival-{number}")
        sale.answer(end_ms, f"rival-{number}", "busy")
    return sale


def test_three_ttls_without_a_purchase_are_a_deadlock() -> None:
    """The time counts from 100 ms, when the fault is healed.

    The argument `ttl` of judge() is the lock's ttl in seconds. With None, the judge does not look
    for deadlocks.
    """
    judgement = make_deadlocked_sale(end_ms=3100).judge(ttl=1.0)
    assert (judgement.verdict, judgement.violations) == ("deadlock", ())
    assert make_deadlocked_sale(end_ms=3099).judge(ttl=1.0).verdict == "unknown"
    assert make_deadlocked_sale(end_ms=3100).judge(ttl=1.1).verdict == "unknown"
    assert make_deadlocked_sale(end_ms=3100).judge(ttl=None).verdict == "unknown"


def test_buyer_refused_for_less_than_three_ttls_shows_no_deadlock() -> None:
    """The fault is healed at 100 ms, 3.1 ttls before the last answer, at 3200 ms.

    But the only rival sends its first request at 2000 ms, so it is refused for 1.2 ttls only.
    """
    sale = make_deadlocked_sale(end_ms=3100)
    sale.events = [event for event in sale.events if "rival" not in event.get("attempt", "")]
    sale.request(2000, "rival-1")
    sale.answer(3200, "rival-1", "busy")
    assert sale.judge().verdict == "unknown"


def test_sale_is_deadlocked_only_if_a_unit_is_left() -> None:
    """Both units are ordered, so the rivals could buy nothing, and the verdict is `unknown`.

    After a lost update the stock still shows a unit, which the rivals could buy.
    """
    sale = make_deadlocked_sale(end_ms=3100)
    for key, stock_seen in (("buyer-1", 2), ("buyer-2", 1)):
        sale.request(10, key)
        sale.answer(20, key, "sold", sale.commit(11, key, stock_seen))
    assert sale.judge().verdict == "unknown"
    sale.final_stock = 1
    assert sale.judge().verdict == "deadlock"


def test_sale_is_deadlocked_only_if_the_fault_happened_and_was_healed() -> None:
    """The verdict is `unknown` if the fault did not happen, is not proven, or was not healed."""
    not_fired = make_deadlocked_sale(end_ms=3100)
    assert not_fired.judge(fault_fired=False).verdict == "unknown"
    not_proven = make_deadlocked_sale(end_ms=3100)
    not_proven.add_fault(60, "prove", "process 12 is alive", type="fail")
    assert not_proven.judge().verdict == "unknown"
    not_healed = make_deadlocked_sale(end_ms=3100)
    not_healed.events = [event for event in not_healed.events if event.get("phase") != "heal"]
    assert not_healed.judge().verdict == "unknown"


def test_time_of_a_deadlock_counts_from_the_last_purchase() -> None:
    """The fault is healed at 100 ms, and the rivals are refused until 3500 ms, for 3.4 ttls.

    Another buyer has an order, and is answered `sold` or `unknown`. If the answer comes at 110 ms,
    the sale is deadlocked. If it comes at 3000 ms, the rivals are refused for only 0.5 ttls after
    it.
    """

    def judge_with_last_purchase(answered_ms: float, outcome: str) -> str:
        """Return the verdict if another buyer is answered at this time with this outcome."""
        sale = make_deadlocked_sale(end_ms=3500)
        sale.request(80, "holder")
        sale.answer(answered_ms, "holder", outcome, sale.commit(95, "holder", 2))
        return sale.judge().verdict

    for outcome in ("sold", "unknown"):
        assert judge_with_last_purchase(110, outcome) == "deadlock"
        assert judge_with_last_purchase(3000, outcome) == "unknown"


def test_shop_that_answers_sold_out_is_not_deadlocked() -> None:
    """Two rivals are refused for 3 ttls. A third is answered `sold_out`, so no lock stopped it."""
    sale = make_deadlocked_sale(end_ms=3100)
    sale.request(2000, "rival-3")
    sale.answer(2001, "rival-3", "sold_out")
    assert sale.judge().verdict == "unknown"


def test_excused_buyer_without_an_answer_does_not_count() -> None:
    """A fault kills the node of a buyer, who is excused from repeating the unanswered request.

    Two of three units are ordered. The buyer `killed`, who got no answer, may have taken the third.
    If it is excused, the sale is exact; otherwise the verdict is `unknown`. If it is answered
    `sold_out` in the end, the third unit is missing.
    """
    sale = sequential_sale()
    sale.stock = 3
    sale.request(5, "killed")
    sale.answer(6, "killed", "unknown")
    sale.remove_events("rival-2")  # whom sequential_sale() answers `sold_out`
    judgement = sale.judge(buyers_without_retry=["killed"])
    assert (judgement.verdict, judgement.undersold) == ("exact", 0)
    assert judgement.outcomes["unknown"] == 1
    assert sale.judge().verdict == "unknown"
    sale.request(30, "killed")
    sale.answer(31, "killed", "sold_out")
    assert sale.judge(buyers_without_retry=["killed"]).verdict == "undersold"
