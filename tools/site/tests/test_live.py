"""Every recorded move of the strategies that test_recorded.py leaves out, made again."""

from concurrent.futures import ThreadPoolExecutor

from tools.site.recorder import recording
from tools.site.tests import test_recorded


def test_recorded_moves_of_other_strategies_are_reproduced() -> None:
    """Two processes run at the same time. Each plays half of the strategies on its own database."""
    # A purchase under `reserve` is one script in Redis, so it has no moves.
    left_out = {*test_recorded.QUICK_STRATEGIES, "reserve"}
    strategies = tuple(name for name in recording.describe_strategies() if name not in left_out)
    with ThreadPoolExecutor(2) as pool:
        compare = test_recorded.test_recorded_moves_are_reproduced_by_the_shop
        list(pool.map(compare, (strategies[::2], strategies[1::2])))
