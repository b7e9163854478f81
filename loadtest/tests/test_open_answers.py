"""The judge on buyers without an answer: deadlocked, given up, or served."""

from loadtest.tests.history_builder import HistoryBuilder, sequential_sale


def locked_forever(*, asked_until: float) -> HistoryBuilder:
    """The victim is killed inside its lock, the fault is healed at 100 ms; rivals ask in vain."""
    sale = HistoryBuilder(stock=2)
    sale.ask(0, "victim")
    sale.acquire(1, 2, "victim")
    sale.add_fault(50, "fire", "process 12 killed")
    sale.answer(51, "victim", "unknown")
    sale.add_fault(100, "heal", "node A is back")
    for number in (1, 2):
        sale.ask(90, f"rival-{number}")
        sale.answer(200, f"rival-{number}", "busy")
        sale.ask(210, f"rival-{number}")
        sale.answer(asked_until, f"rival-{number}", "busy")
    return sale


def test_nobody_who_could_buy_for_three_ttl_after_the_heal_is_a_deadlock() -> None:
    judgement = locked_forever(asked_until=3100).judge(ttl=1.0)
    assert (judgement.verdict, judgement.violations) == ("deadlock", ())
    assert locked_forever(asked_until=3099).judge(ttl=1.0).verdict == "unknown"
    assert locked_forever(asked_until=3100).judge(ttl=1.1).verdict == "unknown"
    assert locked_forever(asked_until=3100).judge(ttl=None).verdict == "unknown"


def test_a_buyer_who_asked_late_shows_no_deadlock_either() -> None:
    sale = locked_forever(asked_until=3100)
    sale.events = [event for event in sale.events if "rival" not in event.get("attempt", "")]
    sale.ask(2000, "rival-1")
    sale.answer(3200, "rival-1", "busy")
    assert sale.judge().verdict == "unknown"


def test_a_shelf_that_shows_stock_though_all_was_sold_can_be_deadlocked_and_no_empty_one() -> None:
    sale = locked_forever(asked_until=3100)
    for number in (1, 2):
        key = f"buyer-{number}"
        sale.ask(10, key)
        sale.answer(20, key, "sold", sale.commit(11, key, 3 - number))
    assert sale.judge().verdict == "unknown"  # two rivals still ask
    sale.final_stock = 1
    assert sale.judge().verdict == "deadlock"


def test_a_fault_that_was_not_healed_or_did_not_fire_is_no_deadlock() -> None:
    sale = locked_forever(asked_until=3100)
    assert sale.judge(fault_fired=False).verdict == "unknown"
    sale.add_fault(60, "prove", "process 12 lives", type="fail")
    assert sale.judge().verdict == "unknown"
    sale = locked_forever(asked_until=3100)
    sale.events = [event for event in sale.events if event.get("phase") != "heal"]
    assert sale.judge().verdict == "unknown"


def test_a_holder_that_sells_after_the_heal_and_then_locks_everybody_out_is_a_deadlock() -> None:
    def sold_at(ms: float, outcome: str) -> str:
        sale = locked_forever(asked_until=3500)
        sale.ask(80, "holder")
        sale.answer(ms, "holder", outcome, sale.commit(95, "holder", 2))
        return sale.judge().verdict

    for outcome in ("sold", "unknown"):  # it has its order, whatever the answer
        assert sold_at(110, outcome) == "deadlock"
        assert sold_at(3000, outcome) == "unknown"  # still selling then: nobody knows


def test_a_shop_that_answers_sold_out_is_no_deadlock() -> None:
    sale = locked_forever(asked_until=3100)
    sale.ask(2000, "rival-3")
    sale.answer(2001, "rival-3", "sold_out")
    assert sale.judge().verdict == "unknown"


def test_a_killed_victim_that_is_not_to_ask_again_keeps_no_sale_from_being_judged() -> None:
    sale = sequential_sale()
    sale.stock = 3
    sale.ask(5, "killed")
    sale.answer(6, "killed", "unknown")
    sale.remove_events("rival-2")
    judgement = sale.judge(excused=["killed"])
    assert (judgement.verdict, judgement.undersold, judgement.outcomes["unknown"]) == (
        "exact",
        0,
        1,
    )
    assert sale.judge().verdict == "unknown"
    sale.ask(30, "killed")
    sale.answer(31, "killed", "sold_out")
    assert sale.judge(excused=["killed"]).verdict == "undersold"
