"""Every move of the other strategies again, from the live shop, compared with the recording."""

from concurrent.futures import ThreadPoolExecutor

from tools.site.recorder import recording
from tools.site.tests import test_recorded


def test_shop_does_what_is_recorded_of_all_others() -> None:
    """In two processes: they wait most of the time, and each makes a database of its own."""
    tested_elsewhere = {*test_recorded.SOME, "reserve"}
    untested = tuple(name for name in recording.strategies() if name not in tested_elsewhere)
    with ThreadPoolExecutor(2) as pool:
        compare = test_recorded.test_what_is_recorded_is_what_the_shop_does
        list(pool.map(compare, (untested[::2], untested[1::2])))
