"""Each rule over orders and answers finds what is planted for it, and nothing without it."""

from loadtest.judge.verdict import Judgement
from loadtest.tests.happenings import Happenings, one_after_the_other, only


def test_orders_are_compared_with_the_shelf() -> None:
    shop = one_after_the_other()
    erased = only(shop.judged(left=1), "lost_update")
    assert erased.what == "2 orders took 1 unit: 1 decrement was erased"
    gone = only(shop.judged(left=-1), "lost_update")
    assert gone.what == "2 orders took 3 units: 1 unit went without an order"
    assert shop.judged(left=1).verdict == "unknown"


def test_an_acknowledged_order_that_went_is_a_lost_ack_though_the_last_answer_was_another() -> None:
    shop = one_after_the_other()
    shop.asks(60, "rival-3")
    shop.answered(61, "rival-3", "sold", 33)
    shop.asks(62, "rival-3")
    shop.answered(63, "rival-3", "sold_out")
    finding = only(shop.judged(), "lost_ack")
    assert finding.what == "rival-3 was answered with order 33; there is none"
    assert finding.attempts == ("rival-3",)


def sold_out_at(ms: float) -> Happenings:
    """rival-3 is answered sold_out; victim and rival-1 read for the two units at 3 and 23 ms."""
    shop = one_after_the_other()
    shop.asks(ms - 1, "rival-3")
    shop.answered(ms, "rival-3", "sold_out")
    return shop


def test_sold_out_before_the_last_unit_could_have_gone_is_false() -> None:
    assert sold_out_at(23.1).judged().violations == ()
    finding = only(sold_out_at(22.9).judged(), "false_sold_out")
    assert finding.what == "rival-3 was answered sold_out when at most 1 of 2 units had gone"
    assert finding.attempts == ("rival-3",)
    assert sold_out_at(22.9).judged().verdict == "unknown"


def refused_and_sold(*answers: str) -> Judgement:
    """rival-1 has an order, and got these answers, one request after the other."""
    shop = Happenings(stock=1)
    shop.commits(5, "rival-1", 1)
    for number, outcome in enumerate(answers):
        shop.asks(10 * number, "rival-1")
        if outcome:
            shop.answered(10 * number + 9, "rival-1", outcome)
    return shop.judged()


def test_a_refused_buyer_with_an_order_is_a_false_refusal() -> None:
    for outcome in ("busy", "lost", "full", "unavailable", "throttled", "error"):
        judged = refused_and_sold("busy", outcome)
        assert only(judged, "false_refusal").attempts == ("rival-1",)
        assert judged.verdict == "unknown"


def test_a_buyer_whose_answer_was_left_open_once_may_have_an_order() -> None:
    for answers in (("unknown", "busy"), ("busy", "unknown"), ("",), ("", "lost")):
        judged = refused_and_sold(*answers)
        assert (judged.verdict, judged.violations) == ("unknown", ())  # no final answer
        assert judged.recovered == {"rival-1": 31}


def test_a_unit_that_a_counter_gave_away_is_gone_before_its_node_read_anything() -> None:
    shop = sold_out_at(22.9)
    assert shop.judged().violations == ("false_sold_out",)
    shop.at(22.5, "rival-1", "reserve")
    assert shop.judged().violations == ()
