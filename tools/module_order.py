"""A pytest plugin that chooses the test modules, sorts them, and repeats tests that may be flaky.

`make test` does not run the modules in SLOW, and `make test-slow` runs only these, unless the
command line has paths of files. The slow tests start commands, nodes, servers and browsers.

The longest modules run first. Otherwise one worker of xdist could run a long module at the end,
while the others have nothing to do. xdist keeps this order because of `--no-loadscope-reorder`;
without this option it would begin with the modules that have the most tests.
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

#: Module, or folder of modules, whose tests may fail on a busy machine -> the reason. If such a
#: test fails, it is run once more, and the summary lists it. A test that fails twice has failed.
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
    """Add the option `--slow`, which `make test-slow` uses."""
    parser.addoption("--slow", action="store_true", help="run only the slow test modules")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line that says how many slow modules are left out; none if they are run."""
    if not _should_choose_modules(config) or config.getoption("slow"):
        return []
    return [f"without the {len(SLOW)} slowest modules: `make test-slow` runs them"]


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the modules in SLOW; with the option `--slow`, leave out all other modules.

    Returns True for a module to leave out, and None to let pytest decide.
    """
    if not _should_choose_modules(config) or collection_path.suffix != ".py":
        return None
    name = collection_path.relative_to(config.rootpath).as_posix()
    is_test_module = collection_path.name.startswith("test_")
    runs_slow_modules = config.getoption("slow")
    is_slow = name in SLOW
    if is_test_module and is_slow != runs_slow_modules:
        return True
    return None


def _should_choose_modules(config: pytest.Config) -> bool:
    """Return whether this plugin chooses the modules: the command line has no paths of files."""
    return config.args_source is not pytest.Config.ArgsSource.ARGS


@pytest.hookimpl(trylast=True)  # after pytest-django, which orders the tests within modules
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by their modules: first those in SLOW, then those in LONGEST, then the rest.

    So no worker runs a long module alone at the end.
    """
    ranks = {module: rank for rank, module in enumerate(SLOW + LONGEST)}

    def get_module_rank(item: pytest.Item) -> int:
        module = item.nodeid.partition("::")[0]
        return ranks.get(module, len(ranks))

    items.sort(key=get_module_rank)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test whose module is in FLAKY, and run it once more if it fails.

    Returns True if the module is in FLAKY, so that pytest does not run the test again as usual.
    """
    if not item.nodeid.startswith(tuple(FLAKY)):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failures = [report.longreprtext for report in reports if report.failed]
    if failures:
        _collect_garbage_of_failed_test()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            report.user_properties.append(("first failure", "\n".join(failures)))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _collect_garbage_of_failed_test() -> None:
    """Collect the garbage that a failed test has left, and ignore its ResourceWarnings.

    If the garbage were collected during another test, these warnings would make that test fail.
    """
    # pytest stores the last exception in these attributes. Its traceback refers to objects of the
    # failed test, which are not garbage as long as the traceback exists.
    for name in ("last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Store the first failure of a repeated test, for the summary.

    With xdist, this hook also runs in the main process. There the text of the failure is known only
    from the report, so pytest_runtest_protocol() has made it a property of the report.
    """
    if report.when == "call":  # the reports of setup and teardown have the same property
        for name, failure in report.user_properties:
            if name == "first failure":
                first_failures[report.nodeid] = str(failure)


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

    gc.freeze() then excludes the objects of all loaded modules from later garbage collections.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
