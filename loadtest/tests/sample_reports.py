"""Reports of artificial runs: a rush of 200 buyers, and a pause that broke a lock."""

from operator import itemgetter
from pathlib import Path
from typing import Any

from loadtest.expected import EXPECTED
from loadtest.report import html_report
from loadtest.report.story import tell_story
from loadtest.tests.history_builder import HistoryBuilder, sequential_sale
from loadtest.tests.test_story import paused_sale

HOSTILE = "</script><script>hacked()</script><!--<img src=x onerror=hacked()>"
FAULTS = {"pause": "SIGSTOP of the holder's node past the ttl"}


def run_of(sale: HistoryBuilder, lock: str, fault: str, **fields: Any) -> Any:
    """Return the run of a sale, as a summary has it."""
    judgement = sale.judge()
    return {
        "lock": lock,
        "fault": fault,
        "buyers": len(sale.last_requests),
        "hold_ms": 0,
        **judgement.as_run(),
        "expected": judgement.verdict,
        "as_expected": True,
        **fields,
    }


def summary_of(*runs: Any) -> Any:
    machine = {"cpus": 2, "python": "3.11.7", "postgres": "18.4", "redis": "Valkey 9.1.2"}
    return {
        "started": "2026-11-21T05:00:00+00:00",
        "machine": machine,
        "nodes": 2,
        "workers": 2,
        "threads": 100,
        "runs": list(runs),
    }


def crowded_sale(run: str, buyers: int = 200, stock: int = 100) -> HistoryBuilder:
    """Return a sale in which every buyer reads the full stock: the worst case without a lock."""
    sale = HistoryBuilder(stock=stock, final_stock=stock - 1)
    keys = [f"{run}/buyer-{number}" for number in range(buyers)]
    for number, key in enumerate(keys):
        sale.ask(number / 10, key)
        sale.read(30 + number, key, stock, pid=number)
    for number, key in enumerate(keys):
        order = sale.commit(300 + 5 * number, key, stock, pid=number)
        sale.answer(302 + 5 * number, key, "sold", order)
    return sale


def write_rush(folder: Path, buyers: int = 200) -> Path:
    """Write the report of a demo: `buyers` without a lock, and three buyers with one."""
    none = crowded_sale("a1", buyers)
    redis = sequential_sale("b2")
    rush = {"buy_ms": {"p50": 310, "p95": 540, "max": 560}, "duration_s": 1.3}
    runs = [
        run_of(none, "none", "rush", attempts="a1", **rush),
        run_of(redis, "redis", "rush", attempts="b2", **rush),
    ]
    events = [*none.build().events, *redis.build().events]
    events.sort(key=itemgetter("t"))
    return html_report.write(folder, summary_of(*runs), events, title="the rush")


def write_faults(folder: Path, **token_fields: Any) -> Path:
    """Write the report of three cells: a pause of token and redis, and a crash of redis.

    token_fields  fields of the first cell
    """
    token = paused_sale()
    redis = sequential_sale("9d1f/pause/redis")
    crash = sequential_sale("9d1f/crash/redis")
    facts = {"story": tell_story(token.judge()), "evidence": "both in state T"}
    runs = [
        run_of(token, "token", "pause", **{**facts, **token_fields}),
        run_of(redis, "redis", "pause", story=[], evidence="both in state T"),
        run_of(crash, "redis", "crash", story=[], expected="undersold", as_expected=False),
    ]
    events = [event for sale in (token, redis, crash) for event in sale.build().events]
    events.sort(key=itemgetter("t"))
    return html_report.write(folder, summary_of(*runs), events, title="every fault", faults=FAULTS)


def write_every_fault(folder: Path) -> Path:
    """Write the report of every strategy under every fault.

    The pause of `token` has a timeline, was healed at once, and is opened first.
    """
    faults = dict.fromkeys(fault for row in EXPECTED.values() for fault in row)
    names = [fault for fault in faults if not fault.startswith("rush")]
    token = paused_sale()
    fired_ms = token.build().events[3]["t"] / 1e6
    for ms, phase in enumerate(("fire", "heal", "fire", "heal")):
        token.add_fault(fired_ms + ms, phase, what=phase, type="ok")
    pause = run_of(token, "token", "pause", verdict="oversold", story=[])
    cells = [
        {**pause, "lock": lock, "fault": fault, "verdict": row[fault]}
        for lock, row in EXPECTED.items()
        for fault in names
        if fault in row
    ]
    events = sorted(token.build().events, key=itemgetter("t"))
    return html_report.write(folder, summary_of(*cells), events, title="every fault", faults=FAULTS)
