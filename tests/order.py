"""How `make test` begins: its longest modules first, so that none is left alone at the end.

A pytest plugin. xdist takes modules in this order (`--no-loadscope-reorder`); by itself it begins
with those that have most tests, and ends with the few that take half a minute each.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

#: Each at least some 8 seconds, by `make test ARGS=--durations=0`. Those that compute come between
#: those that wait, so that not all workers want the processors at once.
LONGEST = (
    "loadtest/tests/test_readme.py",
    "loadtest/tests/test_faults.py",
    "loadtest/tests/test_demo.py",
    "locks/tests/test_failover.py",
    "loadtest/tests/test_page.py",
    "loadtest/tests/test_slow_clients.py",
    "loadtest/tests/test_attacks_from_the_web.py",
    "servers/tests/test_embedded.py",
    "servers/tests/test_embedded_user.py",
    "loadtest/tests/test_restart_of_a_node.py",
    "loadtest/tests/test_sentinels.py",
    "loadtest/tests/test_locust.py",
    "shop/tests/test_metrics.py",
    "shop/tests/test_isolation.py",
    "loadtest/tests/test_html_report_page.py",
    "loadtest/tests/test_partition_from_database.py",
    "shop/tests/test_fuzz.py",
    "shop/tests/test_node.py",
    "loadtest/tests/test_locust_page.py",
    "shop/tests/test_max_hold.py",
    "shop/tests/test_roles.py",
    "locks/tests/test_watchdog.py",
    "locks/tests/test_package.py",
    "loadtest/tests/test_database_cut_off.py",
    "shop/tests/test_every_strategy.py",
    "locks/tests/test_chaos.py",
    "loadtest/tests/test_content_security.py",
    "locks/tests/classic/test_zookeeper.py",
    "shop/tests/test_server_lock.py",
    "loadtest/tests/test_serve.py",
    "shop/tests/test_admin_login.py",
)


@pytest.hookimpl(trylast=True)  # pytest-django has put its own order into each module
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {module: place for place, module in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without a look for garbage among all that is loaded, then or later: it is a third of the time
    that collection takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
