"""A pytest plugin: which test modules `make test` runs, in which order, and which tests it repeats.

`make test` leaves the modules in SLOW to `make test-slow`, unless the command names files. Their
tests start commands, nodes, servers and browsers. The longest modules run first, so that no worker
runs a long one alone at the end. xdist keeps this order because of `--no-loadscope-reorder`; its
own order begins with the modules that have most tests.
"""

import gc
import sys
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

#: The modules of `make test-slow`. They start processes: whole commands, servers, browsers, or
#: Python with other settings. The longest come first.
#: Modules that compute come between modules that wait, so that not all workers need a processor at
#: the same time.
SLOW = (
    "tools/site/tests/test_live.py",
    "tools/site/tests/test_worlds_live.py",
    "loadtest/tests/test_behind_nginx.py",
    "tools/tests/test_readme.py",
    "loadtest/tests/test_faults.py",
    "loadtest/tests/test_demo.py",
    "testing/tests/test_other_databases.py",
    "locks/tests/test_stress.py",
    "shop/tests/ops/test_roles.py",
    "shop/tests/schedules/test_mariadb.py",
    "loadtest/tests/test_load.py",
    "locks/tests/test_failover.py",
    "loadtest/tests/test_page.py",
    "loadtest/tests/test_attacks_from_the_web.py",
    "loadtest/tests/test_sentinels.py",
    "loadtest/tests/test_locust.py",
    "loadtest/tests/test_extra_servers.py",
    "examples/tests/test_mysql_shop.py",
    "locks/tests/test_async_threads.py",
    "loadtest/tests/test_locust_process.py",
    "loadtest/tests/test_workers.py",
    "loadtest/tests/test_serve.py",
    "loadtest/tests/test_html_report_page.py",
    "loadtest/tests/test_page_steps.py",
    "loadtest/tests/test_target_rush.py",
    "loadtest/tests/test_leaves_nothing.py",
    "loadtest/tests/test_server_death.py",
    "loadtest/tests/test_database_faults.py",
    "shop/tests/ops/test_pgbouncer.py",
    "locks/tests/test_chaos.py",
    "shop/tests/schedules/test_sqlite.py",
    "tools/tests/test_repeats.py",
    "loadtest/tests/test_database_cut_off.py",
    "loadtest/tests/test_weakened_faults.py",
    "examples/tests/test_fastapi_shop.py",
    "locks/tests/test_package.py",
    "locks/tests/contract/test_cluster.py",
    "servers/tests/test_embedded.py",
    "shop/tests/api/test_fuzz.py",
    "shop/tests/ops/test_node.py",
    "shop/tests/sale/test_asgi_node.py",
    "shop/tests/ops/test_metrics.py",
    "examples/tests/test_examples.py",
    "servers/tests/test_doctor.py",
    "tools/site/tests/test_recorded.py",
    "testing/tests/test_package.py",
    "testing/tests/test_plugin.py",
    "shop/tests/ops/test_settings.py",
    "loadtest/tests/test_private_names.py",
    "deploy/tests/test_compose.py",
    "shop/tests/api/test_asgi_contract.py",
    "servers/tests/test_postgres_copy.py",
    "servers/tests/test_mariadb.py",
    "deploy/tests/test_kubernetes.py",
    "shop/tests/ops/test_commands.py",
    "shop/tests/sale/test_fences.py",
    "loadtest/tests/test_strategies.py",
    "tools/tests/test_ci.py",
    "tools/site/tests/test_site.py",
    "tools/site/tests/test_steps.py",
    "tools/site/tests/test_levels_page.py",
    "tools/site/tests/test_live_levels.py",
    "tools/site/tests/test_pages.py",
)
#: The other modules that take at least 8 seconds, as `make test ARGS=--durations=0` shows.
LONGEST = (
    "shop/tests/strategies/test_every_strategy.py",
    "testing/tests/test_interleaving.py",
    "shop/tests/strategies/test_isolation.py",
    "loadtest/tests/test_required_fields.py",
    "locks/tests/contract/test_contract.py",
    "locks/tests/contract/test_outages.py",
    "demo/tests/test_steps.py",
    "locks/tests/contract/test_dead_holders.py",
    "locks/tests/test_one_file_times.py",
    "locks/tests/test_async.py",
    "locks/tests/test_fairness.py",
    "locks/tests/test_watchdog.py",
)

#: Modules, or folders of modules, whose tests may fail on a busy machine -> the reason. If such a
#: test fails, it is run once more, and the summary names it; if it fails twice, it has failed.
FLAKY = {
    "deploy/tests/test_rolling_restart.py": "a shell script with timeouts",
    "examples/tests/test_examples.py": "a lock's wait is bounded in seconds",
    "loadtest/tests/test_demo.py": "whole commands, which run at the same time",
    "loadtest/tests/test_leaves_nothing.py": "processes that must end within seconds",
    "loadtest/tests/test_locust.py": "whole commands, and signals at one moment",
    "loadtest/tests/test_server_death.py": "servers that are killed at one moment",
    "locks/tests/": "leases of a second or less",
    "servers/tests/test_proxy.py": "sockets that are cut at one moment",
    "shop/tests/ops/": "nodes that restart within seconds",
    "shop/tests/reserve/": "promises that must be settled within seconds",
    "shop/tests/sale/test_asgi_node.py": "the node may close a file while its files are counted",
    "shop/tests/schedules/": "timeouts of the database",
    "testing/tests/": "a wait is noticed by polling",
}
#: How many of the last lines of a repeated test's first failure the summary shows.
MAX_FAILURE_LINES = 15
#: The node id of each test that was repeated -> the text of its first failure.
first_failures: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run what make test leaves out")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line that says how many modules of SLOW this run leaves out, if it does."""
    if not _should_choose_modules(config) or config.getoption("slow"):
        return []
    return [f"{len(SLOW)} modules that take longest are left to make test-slow"]


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the modules of SLOW in `make test`, and all others in `make test-slow`.

    Nothing is ignored if the command names files.
    """
    if not _should_choose_modules(config) or collection_path.suffix != ".py":
        return None
    name = collection_path.relative_to(config.rootpath).as_posix()
    is_test = collection_path.name.startswith("test_")
    is_slow = name in SLOW
    if is_test and is_slow != config.getoption("slow"):
        return True
    return None


def _should_choose_modules(config: pytest.Config) -> bool:
    """Return whether the command names no files, so that this plugin chooses the modules."""
    return config.args_source is not pytest.Config.ArgsSource.ARGS


@pytest.hookimpl(trylast=True)  # after pytest-django, which orders the tests within modules
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slowest modules first, so that no worker runs a slow one alone at the end.

    The modules of SLOW come first, then those of LONGEST, then the others.
    """
    ranks = {module: rank for rank, module in enumerate(SLOW + LONGEST)}

    def rank_of(item: pytest.Item) -> int:
        module = item.nodeid.partition("::")[0]
        return ranks.get(module, len(ranks))

    items.sort(key=rank_of)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test once more if it fails and its module is in FLAKY.

    Returns True for a test of such a module, so that pytest does not also run it as usual.
    """
    if not item.nodeid.startswith(tuple(FLAKY)):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failures = [report.longreprtext for report in reports if report.failed]
    if failures:
        _forget_the_failed_try()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            report.user_properties.append(("first failure", "\n".join(failures)))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _forget_the_failed_try() -> None:
    """Collect the garbage that a failed test has left, and ignore its ResourceWarnings.

    Otherwise the garbage may be collected during another test, which these warnings then fail.
    """
    # pytest keeps the last exception in these attributes. Its traceback has the test's objects.
    for name in ("last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the first failure of a repeated test.

    The text of the failure is a property of the report, because xdist's main process gets nothing
    but the reports from its workers.
    """
    if report.when == "call":  # the reports of setup and teardown have the same property
        for name, value in report.user_properties:
            if name == "first failure":
                first_failures[report.nodeid] = str(value)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each repeated test, why it may fail on a busy machine, and its first failure."""
    for name, failure in first_failures.items():
        reason = next(reason for path, reason in FLAKY.items() if name.startswith(path))
        terminalreporter.line(f"REPEATED {name}: {reason}")
        for line in failure.splitlines()[-MAX_FAILURE_LINES:]:
            terminalreporter.line(f"    {line}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Switch garbage collection off while pytest collects the tests, to save a third of the time.

    gc.freeze() keeps later garbage collections from scanning the modules that are loaded by then.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
