"""The shop reproduces the recorded moves under the strategies that test_recorded.py leaves out."""

from concurrent.futures import ThreadPoolExecutor

from tools.site.recorder import recording
from tools.site.tests import test_recorded


def test_recorded_moves_of_other_strategies_are_reproduced() -> None:
    """Each turn of a new recording is equal to the saved one.

    Two processes play half of the strategies each, at the same time and on separate servers.
    """
    # A purchase under `reserve` is one script in Redis, so its moves are not recorded.
    left_out = {*test_recorded.QUICK_STRATEGIES, "reserve"}
    strategies = tuple(name for name in recording.describe_strategies() if name not in left_out)
    with ThreadPoolExecutor(2) as pool:
        halves = (strategies[::2], strategies[1::2])
        list(pool.map(test_recorded.assert_moves_are_reproduced, halves))
