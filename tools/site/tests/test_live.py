"""Every recorded move of the other strategies, made again by the live shop."""

from concurrent.futures import ThreadPoolExecutor

from tools.site.recorder import recording
from tools.site.tests import test_recorded


def test_recorded_moves_of_other_strategies_are_reproduced() -> None:
    """Two processes play them, each with its own database, because they mostly wait."""
    tested_elsewhere = {*test_recorded.SOME, "reserve"}
    untested = tuple(name for name in recording.strategies() if name not in tested_elsewhere)
    with ThreadPoolExecutor(2) as pool:
        compare = test_recorded.test_recorded_moves_are_reproduced_by_the_shop
        list(pool.map(compare, (untested[::2], untested[1::2])))
