"""The story of a sale: a timeline of about a dozen lines that shows how the sale was broken.

The events have times in milliseconds. The story has times in seconds since its first line.
"""

from typing import Any

from loadtest.report.story import MAX_LINES, tell_story
from loadtest.tests.history_builder import HistoryBuilder, sequential_sale

#: The prefix of the buyers' keys under one fault and strategy. The story leaves it out.
KEY_PREFIX = "9d1f/pause/token"
#: The origin of an event: a process of node A, or of node B.
NODE_A: dict[str, Any] = {"node": "A", "pid": 12}
NODE_B: dict[str, Any] = {"node": "B", "pid": 22}


def make_paused_sale() -> HistoryBuilder:
    """Return a sale whose victim is stopped for longer than the ttl while it has the lock.

    Meanwhile a rival acquires the lock and reads the same stock, 10. Then the victim is resumed and
    sells a unit, and after it the rival sells one. Both write a stock of 9, so one decrement is
    lost. Nine more buyers buy the other units, so ten units have eleven orders.
    """
    sale = HistoryBuilder(stock=10, final_stock=0)
    victim = f"{KEY_PREFIX}/victim"
    rival = f"{KEY_PREFIX}/rival-1"
    sale.add_fault(0, "arm", "a gate at after_read")
    sale.request(5, victim)
    sale.acquire(6, 10, victim, 7, **NODE_A)
    sale.read(14, victim, 10, **NODE_A)
    sale.add_fault(20, "fire", "node A stopped with SIGSTOP (pids 12, 13)")
    sale.add_fault(25, "prove", "both processes are in state T")
    sale.request(30, rival, node="B")
    sale.acquire(31, 1030, rival, 8, **NODE_B)
    sale.read(1031, rival, 10, **NODE_B)
    sale.add_fault(2550, "heal", "node A goes on")
    victims_order = sale.commit(2561, victim, 10, 7, **NODE_A)
    rivals_order = sale.commit(2570, rival, 10, 8, **NODE_B)
    sale.release(2571, victim, "expired", **NODE_A)
    sale.release(2572, rival, **NODE_B)
    sale.answer(2575, victim, "sold", victims_order)
    sale.answer(2580, rival, "sold", rivals_order)
    for number in range(9):
        sale.buy(
            2600 + 20 * number, f"{KEY_PREFIX}/buyer-{number:02}", 9 - number, fence=9 + number
        )
    sale.buy(3901, f"{KEY_PREFIX}/buyer-09", 0, fence=20)
    return sale


def test_story_of_a_pause_shows_two_holders_and_the_lost_decrement() -> None:
    """The story is a timeline of the sale. It begins when the victim gets the lock, at 10 ms."""
    judgement = make_paused_sale().judge()
    assert judgement.verdict == "oversold"
    assert judgement.violations == ("lost_update", "overlap", "stale_write")
    assert tell_story(judgement) == [
        " 0.000 s  victim (node A) has the lock, fence 7",
        " 0.004 s  victim reads a stock of 10",
        " 0.010 s  fault: node A stopped with SIGSTOP (pids 12, 13)",
        " 0.015 s  seen: both processes are in state T",
        " 1.020 s  rival-1 (node B) has the lock, fence 8: two holders",
        " 1.021 s  rival-1 reads a stock of 10",
        " 2.540 s  fault: node A goes on",
        " 2.551 s  victim sells order 31, writes back 9",
        " 2.561 s  rival-1 sells order 32, writes back 9: the decrement of order 31 is lost",
        " 2.562 s  victim releases, and finds that the lock was not its own",
        " ...      and 9 more sold, last answered sold_out at 3.9 s: 11 orders for 10 units",
    ]


def test_story_shows_a_holder_that_has_not_released_the_lock() -> None:
    """The victim's lock expires after its sale, and the rival gets the lock.

    Only then does the victim release the lock. In between both buyers have acquired the lock and
    not released it yet. The story calls this "two inside".
    """
    sale = HistoryBuilder(stock=2)
    sale.acquire(0, 1, "victim", **NODE_A)
    sale.read(2, "victim", 2, **NODE_A)
    sale.commit(3, "victim", 2, **NODE_A)
    sale.acquire(4, 1005, "rival-1", **NODE_B)
    sale.read(1006, "rival-1", 1, **NODE_B)
    sale.release(1010, "victim", **NODE_A)
    sale.commit(1020, "rival-1", 1, **NODE_B)
    sale.release(1030, "rival-1", **NODE_B)
    assert [line for line in tell_story(sale.judge()) if "has the lock" in line] == [
        " 0.000 s  victim (node A) has the lock",
        " 1.004 s  rival-1 (node B) has the lock: two inside, victim has not released yet",
    ]


def test_story_of_a_deadlock_shows_the_crash_and_the_refusals() -> None:
    """The victim is killed while it has the lock. Then each of three rivals is refused 3 times.

    The story shows two of the rivals, and counts all three in its last line. Its times count from
    2 ms, when the victim gets the lock.
    """
    sale = HistoryBuilder(stock=2)
    sale.request(0, "victim")
    sale.acquire(1, 2, "victim")
    sale.add_fault(50, "fire", "process 12 killed")
    sale.answer(51, "victim", "unknown")
    sale.add_fault(100, "heal", "node A is back")
    for key in ("rival-1", "rival-2", "rival-3"):
        for ms in (110, 1200, 3150):
            sale.request(ms, key)
            sale.answer(ms + 50, key, "busy")
    judgement = sale.judge()
    assert judgement.verdict == "deadlock"
    assert tell_story(judgement) == [
        " 0.000 s  victim (node A) has the lock",
        " 0.048 s  fault: process 12 killed",
        " 0.049 s  victim is answered unknown",
        " 0.098 s  fault: node A is back",
        " 0.158 s  rival-1 is answered busy, 3 times",
        " 0.158 s  rival-2 is answered busy, 3 times",
        " ...      3 still refused at 3.2 s, 2 units left: 0 orders for 2 units",
    ]


def test_story_of_an_undersold_sale_shows_a_refused_buyer() -> None:
    """One of two units is sold, and the other two buyers are answered `sold_out`.

    The story begins with the first of these answers, at 0.000 s. Its last line counts the order.
    """
    sale = HistoryBuilder(stock=2)
    sale.buy(0, "buyer-1", 2)
    for key in ("buyer-2", "buyer-3"):
        sale.request(20, key)
        sale.answer(21, key, "sold_out")
    judgement = sale.judge()
    assert judgement.verdict == "undersold"
    lines = tell_story(judgement)
    assert " 0.000 s  buyer-2 is answered sold_out" in lines
    assert (
        lines[-1]
        == " ...      and 1 more sold, last answered sold_out at 0.0 s: 1 order for 2 units"
    )


def test_story_shows_an_order_that_its_buyer_does_not_know() -> None:
    """The victim has an order, but its answer was lost (`unknown`)."""
    sale = HistoryBuilder(stock=1)
    sale.request(0, "victim")
    sale.commit(5, "victim", 1)
    sale.answer(9, "victim", "unknown")
    assert tell_story(sale.judge()) == [
        " 0.000 s  victim sells order 31 (its buyer does not know)",
        " 0.004 s  victim is answered unknown",
        " ...      1 order for 1 unit",
    ]


def test_story_says_that_a_fault_did_not_fire() -> None:
    """The fault should have stopped process 12, but it is still running: it sleeps (state S)."""
    sale = sequential_sale()
    sale.add_fault(3, "prove", "process 12 is in state S", type="fail")
    lines = tell_story(sale.judge())
    assert " 0.001 s  fault: no proof that it happened: process 12 is in state S" in lines


def test_repeated_read_is_shown_once_until_the_stock_changes() -> None:
    """The victim reads a stock of 2 at 0, 1 and 2 ms, and a stock of 1 at 3 and 4 ms."""
    sale = HistoryBuilder(stock=2)
    sale.request(0, "victim")
    for ms, amount in enumerate((2, 2, 2, 1, 1)):
        sale.read(ms, "victim", amount)
    sale.answer(9, "victim", "busy")
    reads = [line for line in tell_story(sale.judge()) if "reads" in line]
    assert reads == [" 0.000 s  victim reads a stock of 2", " 0.003 s  victim reads a stock of 1"]


def test_story_does_not_say_that_a_wrong_read_lost_a_decrement() -> None:
    """The purchase of rival-1 reads 7 units in a sale of 2, which the rule `stale_write` finds.

    But its order did not erase the decrement of another order.
    """
    sale = HistoryBuilder(stock=2)
    sale.buy(1, "victim", 2)
    sale.buy(5, "rival-1", 7)
    judgement = sale.judge(stock_left=0)
    assert "stale_write" in judgement.violations
    assert "decrement" not in "\n".join(tell_story(judgement))


def test_shortened_story_still_shows_the_fault_and_the_lost_decrement() -> None:
    """A story of more than MAX_LINES lines is shortened. Here 40 reads have a line each."""
    sale = make_paused_sale()
    for number in range(40):
        stock = number % 2  # differs from the last read: a read of the same stock is not shown
        sale.read(40 + number, f"{KEY_PREFIX}/rival-1", stock, **NODE_B)
    lines = tell_story(sale.judge())
    assert len(lines) == MAX_LINES
    text = "\n".join(lines)
    phrases = ("SIGSTOP", "goes on", "two holders", "decrement of order 31 is lost", "11 orders")
    for phrase in phrases:
        assert phrase in text


def test_story_of_an_empty_history_has_one_line() -> None:
    """No buyer came, and no fault happened."""
    assert tell_story(HistoryBuilder(stock=2).judge()) == [" ...      0 orders for 2 units"]


def test_story_shows_a_release_that_deletes_the_lock_of_another() -> None:
    """The victim gets the lock at 10 ms, and the rival has it from 30 to 60 ms.

    If the victim releases the lock at 40 ms, it deletes the rival's lock.
    """

    def tell_story_with_release_at(released_ms: float) -> str:
        """Return the story if the victim releases the lock at `released_ms`."""
        sale = HistoryBuilder(stock=2)
        sale.request(0, "x/victim")
        sale.acquire(1, 10, "x/victim", **NODE_A)
        sale.request(0, "x/rival-1")
        sale.acquire(1, 30, "x/rival-1", **NODE_B)
        sale.release(released_ms, "x/victim", **NODE_A)
        sale.release(60, "x/rival-1", **NODE_B)
        return "\n".join(tell_story(sale.judge()))

    deletion = "victim releases, and so deletes the lock of rival-1"
    assert deletion in tell_story_with_release_at(40)
    assert deletion not in tell_story_with_release_at(20)
