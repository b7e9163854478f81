"""Every recorded move of the strategies that test_recorded.py leaves out, made again."""

from concurrent.futures import ThreadPoolExecutor

from tools.site.recorder import recording
from tools.site.tests import test_recorded


def test_recorded_moves_of_other_strategies_are_reproduced() -> None:
    """Run the strategies that test_recorded.py leaves out, each half of them in a process.

    Both processes run at the same time, on databases of their own.
    """
    # A purchase under `reserve` is one script in Redis, so no moves of it are recorded.
    left_out = {*test_recorded.QUICK_STRATEGIES, "reserve"}
    strategies = tuple(name for name in recording.describe_strategies() if name not in left_out)
    with ThreadPoolExecutor(2) as pool:
        halves = (strategies[::2], strategies[1::2])
        list(pool.map(test_recorded.assert_moves_are_reproduced, halves))
