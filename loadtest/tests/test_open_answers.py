"""The judge on buyers without an answer: deadlocked, given up, or served."""

from loadtest.tests.history_builder import HistoryBuilder, one_after_the_other


def locked_forever(*, asked_until: float) -> HistoryBuilder:
    """The victim is killed inside its lock, the fault is healed at 100 ms; rivals ask in vain."""
    shop = HistoryBuilder(stock=2)
    shop.asks(0, "victim")
    shop.acquires(1, 2, "victim")
    shop.fault(50, "fire", "process 12 killed")
    shop.answered(51, "victim", "unknown")
    shop.fault(100, "heal", "node A is back")
    for number in (1, 2):
        shop.asks(90, f"rival-{number}")
        shop.answered(200, f"rival-{number}", "busy")
        shop.asks(210, f"rival-{number}")
        shop.answered(asked_until, f"rival-{number}", "busy")
    return shop


def test_nobody_who_could_buy_for_three_ttl_after_the_heal_is_a_deadlock() -> None:
    judged = locked_forever(asked_until=3100).judged(ttl=1.0)
    assert (judged.verdict, judged.violations) == ("deadlock", ())
    assert locked_forever(asked_until=3099).judged(ttl=1.0).verdict == "unknown"
    assert locked_forever(asked_until=3100).judged(ttl=1.1).verdict == "unknown"
    assert locked_forever(asked_until=3100).judged(ttl=None).verdict == "unknown"


def test_a_buyer_who_asked_late_shows_no_deadlock_either() -> None:
    shop = locked_forever(asked_until=3100)
    shop.events = [event for event in shop.events if "rival" not in event.get("attempt", "")]
    shop.asks(2000, "rival-1")
    shop.answered(3200, "rival-1", "busy")
    assert shop.judged().verdict == "unknown"


def test_a_shelf_that_shows_stock_though_all_was_sold_can_be_deadlocked_and_no_empty_one() -> None:
    shop = locked_forever(asked_until=3100)
    for number in (1, 2):
        key = f"buyer-{number}"
        shop.asks(10, key)
        shop.answered(20, key, "sold", shop.commits(11, key, 3 - number))
    assert shop.judged().verdict == "unknown"  # two rivals still ask
    shop.shelf = 1
    assert shop.judged().verdict == "deadlock"


def test_a_fault_that_was_not_healed_or_did_not_fire_is_no_deadlock() -> None:
    shop = locked_forever(asked_until=3100)
    assert shop.judged(fault_fired=False).verdict == "unknown"
    shop.fault(60, "prove", "process 12 lives", type="fail")
    assert shop.judged().verdict == "unknown"
    shop = locked_forever(asked_until=3100)
    shop.events = [event for event in shop.events if event.get("phase") != "heal"]
    assert shop.judged().verdict == "unknown"


def test_a_holder_that_sells_after_the_heal_and_then_locks_everybody_out_is_a_deadlock() -> None:
    def sold_at(ms: float, outcome: str) -> str:
        shop = locked_forever(asked_until=3500)
        shop.asks(80, "holder")
        shop.answered(ms, "holder", outcome, shop.commits(95, "holder", 2))
        return shop.judged().verdict

    for outcome in ("sold", "unknown"):  # it has its order, whatever the answer
        assert sold_at(110, outcome) == "deadlock"
        assert sold_at(3000, outcome) == "unknown"  # still selling then: nobody knows


def test_a_shop_that_answers_sold_out_is_no_deadlock() -> None:
    shop = locked_forever(asked_until=3100)
    shop.asks(2000, "rival-3")
    shop.answered(2001, "rival-3", "sold_out")
    assert shop.judged().verdict == "unknown"


def test_a_killed_victim_that_is_not_to_ask_again_keeps_no_sale_from_being_judged() -> None:
    shop = one_after_the_other()
    shop.stock = 3
    shop.asks(5, "killed")
    shop.answered(6, "killed", "unknown")
    shop.without("rival-2")
    judged = shop.judged(excused=["killed"])
    assert (judged.verdict, judged.undersold, judged.outcomes["unknown"]) == ("exact", 0, 1)
    assert shop.judged().verdict == "unknown"
    shop.asks(30, "killed")
    shop.answered(31, "killed", "sold_out")
    assert shop.judged(excused=["killed"]).verdict == "undersold"
