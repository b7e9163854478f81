"""Reports of artificial runs, for the tests of report.html.

The report of a rush shows many buyers who buy at once, under several strategies. The report of
faults is a grid whose cells show a strategy under a fault.
"""

from operator import itemgetter
from pathlib import Path
from typing import Any

from loadtest.expected import EXPECTED
from loadtest.report import html_report
from loadtest.report.story import tell_story
from loadtest.tests.history_builder import HistoryBuilder, sequential_sale
from loadtest.tests.test_story import make_paused_sale

#: A text that would run a script if a report did not escape it.
MALICIOUS_TEXT = "</script><script>hacked()</script><!--<img src=x onerror=hacked()>"
#: Fault -> its description.
FAULTS = {"pause": "SIGSTOP of the holder's node past the ttl"}
#: The prefixes of the buyers' keys in the sales of write_faults(): a random id, fault and strategy.
REDIS_PAUSE_PREFIX = "9d1f/pause/redis"
REDIS_CRASH_PREFIX = "9d1f/crash/redis"


def make_judged_run(sale: HistoryBuilder, lock: str, fault: str, **fields: Any) -> Any:
    """Judge a sale, and return it as a run in summary.json.

    lock    the strategy under which the sale took place
    fault   the fault that was made; `rush` if there was none
    fields  further fields of the run, or ones that replace the usual fields
    """
    judgement = sale.judge()
    return {
        "lock": lock,
        "fault": fault,
        "buyers": len(sale.last_requests),
        "hold_ms": 0,
        **judgement.as_judged(),
        "expected": judgement.verdict,
        "as_expected": True,
        **fields,
    }


def make_summary(*runs: Any) -> Any:
    """Return the content of a summary.json with these runs."""
    machine = {"cpus": 2, "python": "3.11.7", "postgres": "18.4", "redis": "Valkey 9.1.2"}
    return {
        "started": "2026-11-21T05:00:00+00:00",
        "machine": machine,
        "nodes": 2,
        "workers": 2,
        "threads": 100,
        "runs": list(runs),
    }


def make_oversold_sale(run: str, buyers: int = 200, stock: int = 100) -> HistoryBuilder:
    """Return a sale without a lock, in which every buyer is sold a unit.

    All buyers read the full stock before the first order is committed, and write one unit less.

    run  the prefix of the buyers' keys
    """
    sale = HistoryBuilder(stock=stock, final_stock=stock - 1)
    keys = [f"{run}/buyer-{number}" for number in range(buyers)]
    for number, key in enumerate(keys):
        sale.request(number / 10, key)
        sale.read(30 + number, key, stock, pid=number)
    for number, key in enumerate(keys):
        order = sale.commit(300 + 5 * number, key, stock, pid=number)
        sale.answer(302 + 5 * number, key, "sold", order)
    return sale


def write_rush(folder: Path, buyers: int = 200) -> Path:
    """Write the report of two rushes, and return its path.

    Under `none`, without a lock, there are `buyers` buyers; under `redis` there are three. The keys
    of the buyers begin with a1 in the first rush, and with b2 in the second.
    """
    unlocked_sale = make_oversold_sale("a1", buyers)
    locked_sale = sequential_sale("b2")
    times = {"buy_ms": {"p50": 310, "p95": 540, "max": 560}, "duration_s": 1.3}
    runs = [
        make_judged_run(unlocked_sale, "none", "rush", attempts="a1", **times),
        make_judged_run(locked_sale, "redis", "rush", attempts="b2", **times),
    ]
    events = [*unlocked_sale.build().events, *locked_sale.build().events]
    events.sort(key=itemgetter("t"))
    return html_report.write(folder, make_summary(*runs), events, title="the rush")


def write_faults(folder: Path, **token_fields: Any) -> Path:
    """Write the report of three runs, and return its path.

    Run 0 is `token` under the fault `pause`, which makes it oversell. Run 1 is `redis` under
    `pause`, and run 2 `redis` under `crash`. Both are exact, but `undersold` was expected of run 2.

    token_fields  further fields of run 0, or ones that replace its usual fields
    """
    token_sale = make_paused_sale()
    redis_sale = sequential_sale(REDIS_PAUSE_PREFIX)
    crash_sale = sequential_sale(REDIS_CRASH_PREFIX)
    evidence = "both processes are in state T"  # T: stopped by a signal
    token_fields = {
        "story": tell_story(token_sale.judge()),
        "evidence": evidence,
        **token_fields,
    }
    runs = [
        make_judged_run(token_sale, "token", "pause", **token_fields),
        make_judged_run(redis_sale, "redis", "pause", story=[], evidence=evidence),
        make_judged_run(
            crash_sale, "redis", "crash", story=[], expected="undersold", as_expected=False
        ),
    ]
    sales = (token_sale, redis_sale, crash_sale)
    events = [event for sale in sales for event in sale.build().events]
    events.sort(key=itemgetter("t"))
    summary = make_summary(*runs)
    return html_report.write(folder, summary, events, title="every fault", faults=FAULTS)


def write_every_fault(folder: Path) -> Path:
    """Write the report of every strategy under every fault, and return its path.

    Each run has the expected verdict. Only `token` under `pause` has events, and therefore a
    timeline. Its fault begins and ends twice within 3 ms, so that the marks of the fault are close
    together.
    """
    sale = make_paused_sale()
    grant = next(event for event in sale.build().events if event["f"] == "acquired")
    granted_ms = grant["t"] / 1e6
    for ms, phase in enumerate(("fire", "heal", "fire", "heal")):
        sale.add_fault(granted_ms + ms, phase, what=phase, type="ok")
    pause = make_judged_run(sale, "token", "pause", verdict="oversold", story=[])
    faults = dict.fromkeys(fault for row in EXPECTED.values() for fault in row)
    # The columns that begin with `rush` are about rushes without a fault.
    cells = [
        {**pause, "lock": lock, "fault": fault, "verdict": row[fault]}
        for lock, row in EXPECTED.items()
        for fault in faults
        if fault in row and not fault.startswith("rush")
    ]
    events = sale.build().events
    summary = make_summary(*cells)
    return html_report.write(folder, summary, events, title="every fault", faults=FAULTS)
