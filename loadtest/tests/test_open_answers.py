"""The verdict on buyers without an answer: deadlocked, given up, or served after all."""

from loadtest.tests.history_builder import HistoryBuilder, sequential_sale


def make_deadlocked_sale(*, end_ms: float) -> HistoryBuilder:
    """Return the history of a sale: the victim is killed with the lock, and its rivals are refused.

    The fault is healed at 100 ms, and the last refusal is at `end_ms`.
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


def test_three_ttls_after_the_heal_without_a_sale_are_a_deadlock() -> None:
    """The fault is healed at 100 ms. The ttl of the lock is in seconds; None if it has no ttl."""
    judgement = make_deadlocked_sale(end_ms=3100).judge(ttl=1.0)
    assert (judgement.verdict, judgement.violations) == ("deadlock", ())
    assert make_deadlocked_sale(end_ms=3099).judge(ttl=1.0).verdict == "unknown"
    assert make_deadlocked_sale(end_ms=3100).judge(ttl=1.1).verdict == "unknown"
    assert make_deadlocked_sale(end_ms=3100).judge(ttl=None).verdict == "unknown"


def test_buyer_who_asked_late_shows_no_deadlock() -> None:
    """The rivals of the deadlocked sale are replaced by one that waits for only 1.2 ttls.

    The fault was healed more than 3 ttls ago.
    """
    sale = make_deadlocked_sale(end_ms=3100)
    sale.events = [event for event in sale.events if "rival" not in event.get("attempt", "")]
    sale.request(2000, "rival-1")
    sale.answer(3200, "rival-1", "busy")
    assert sale.judge().verdict == "unknown"


def test_deadlock_needs_units_or_stock_that_is_left() -> None:
    """Both units have an order. Then only a stock that still shows a unit makes it a deadlock.

    A lost update leaves such a unit. Without it the verdict is `unknown`, because the rivals have
    no final answer.
    """
    sale = make_deadlocked_sale(end_ms=3100)
    for key, stock_seen in (("buyer-1", 2), ("buyer-2", 1)):
        sale.request(10, key)
        sale.answer(20, key, "sold", sale.commit(11, key, stock_seen))
    assert sale.judge().verdict == "unknown"
    sale.final_stock = 1
    assert sale.judge().verdict == "deadlock"


def test_fault_that_did_not_fire_or_heal_is_no_deadlock() -> None:
    """The fault is not fired, is not proved to have fired, or is not healed."""
    not_fired = make_deadlocked_sale(end_ms=3100)
    assert not_fired.judge(fault_fired=False).verdict == "unknown"
    not_proven = make_deadlocked_sale(end_ms=3100)
    not_proven.add_fault(60, "prove", "process 12 is alive", type="fail")
    assert not_proven.judge().verdict == "unknown"
    not_healed = make_deadlocked_sale(end_ms=3100)
    not_healed.events = [event for event in not_healed.events if event.get("phase") != "heal"]
    assert not_healed.judge().verdict == "unknown"


def test_deadlock_counts_from_the_last_sale_after_the_heal() -> None:
    """The fault is healed at 100 ms, and the rivals are refused until 3500 ms, for 3.4 ttls.

    Another buyer has an order, and is answered `sold` or `unknown`, at 110 or at 3000 ms. After
    3000 ms the rivals are not refused long enough for a deadlock.
    """

    def judge_with_last_sale(answered_ms: float, outcome: str) -> str:
        """Return the verdict if a buyer, `holder`, gets this answer to its purchase."""
        sale = make_deadlocked_sale(end_ms=3500)
        sale.request(80, "holder")
        sale.answer(answered_ms, "holder", outcome, sale.commit(95, "holder", 2))
        return sale.judge().verdict

    for outcome in ("sold", "unknown"):
        assert judge_with_last_sale(110, outcome) == "deadlock"
        assert judge_with_last_sale(3000, outcome) == "unknown"


def test_shop_that_answers_sold_out_is_not_deadlocked() -> None:
    """Two rivals are refused for more than 3 ttls, but a third is answered sold_out."""
    sale = make_deadlocked_sale(end_ms=3100)
    sale.request(2000, "rival-3")
    sale.answer(2001, "rival-3", "sold_out")
    assert sale.judge().verdict == "unknown"


def test_excused_buyer_without_an_answer_does_not_count() -> None:
    """Two of three units are sold. The buyer `killed`, without an answer, may have taken the third.

    The judge is told to excuse it, and then the sale is exact. If it is answered `sold_out` in the
    end, a unit is missing.
    """
    sale = sequential_sale()
    sale.stock = 3
    sale.request(5, "killed")
    sale.answer(6, "killed", "unknown")
    sale.remove_events("rival-2")  # whom sequential_sale() answers `sold_out`
    judgement = sale.judge(excused=["killed"])
    assert (judgement.verdict, judgement.undersold) == ("exact", 0)
    assert judgement.outcomes["unknown"] == 1
    assert sale.judge().verdict == "unknown"
    sale.request(30, "killed")
    sale.answer(31, "killed", "sold_out")
    assert sale.judge(excused=["killed"]).verdict == "undersold"
