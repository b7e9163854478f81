"""When the waiters of one process ask whether the holder's lease has ended. No server."""

from __future__ import annotations

from ..acquisition import STAGGER, Watch
from ..lease import new_token


def watch_of(number: int) -> tuple[Watch, list[float]]:
    """A watch with so many waiters, and the second at which each of them asks."""
    watch = Watch()
    tokens = [new_token().encode() for _ in range(number)]
    watch.waiters.update(dict.fromkeys(tokens))
    return watch, [watch.ask_at(token) for token in tokens]


def test_the_first_asks_at_once_and_a_few_others_a_moment_later() -> None:
    _, asks = watch_of(10)
    assert asks == [0.001, *[STAGGER] * 9]


def test_thousands_do_not_ask_at_the_same_moment() -> None:
    """With one moment for all, 5,000 commands would go out in one turn of an event loop."""
    _, asks = watch_of(5000)
    assert asks[0] == 0.001
    assert min(asks[1:]) >= STAGGER
    for start in range(13):
        assert sum(start <= second < start + 1 for second in asks) < 600


def test_a_waiter_keeps_its_moment_and_it_moves_with_the_lease() -> None:
    watch, asks = watch_of(500)
    last = list(watch.waiters)[-1]
    assert watch.ask_at(last) == asks[-1]
    watch.until = 7.0
    assert abs(watch.ask_at(last) - asks[-1] - 7.0) < 1e-6
