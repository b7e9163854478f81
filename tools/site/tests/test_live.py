"""Every move of the other strategies again, from the live shop, compared with the recording."""

from tools.site import recording
from tools.site.tests import test_recorded


def test_the_shop_does_what_is_recorded_of_all_others() -> None:
    """In one process: each would make a database of its own."""
    known = {*test_recorded.SOME, "reserve"}
    others = tuple(name for name in recording.strategies() if name not in known)
    test_recorded.test_what_is_recorded_is_what_the_shop_does(others)
