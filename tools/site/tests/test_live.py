"""Every move of the other strategies again, from the live shop, compared with the recording."""

from concurrent.futures import ThreadPoolExecutor

from tools.site import recording
from tools.site.tests import test_recorded


def test_the_shop_does_what_is_recorded_of_all_others() -> None:
    """In two processes: they wait most of the time, and each makes a database of its own."""
    known = {*test_recorded.SOME, "reserve"}
    others = tuple(name for name in recording.strategies() if name not in known)
    with ThreadPoolExecutor(2) as pool:
        compare = test_recorded.test_what_is_recorded_is_what_the_shop_does
        list(pool.map(compare, (others[::2], others[1::2])))
