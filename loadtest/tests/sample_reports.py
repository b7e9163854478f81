"""Reports of made-up runs: a rush of 200 buyers, and a pause that broke a lock."""

from pathlib import Path
from typing import Any, cast

from loadtest.expected import EXPECTED
from loadtest.judge.history import Event
from loadtest.report import html_report
from loadtest.report.story import tell_story
from loadtest.tests.history_builder import HistoryBuilder, sequential_sale
from loadtest.tests.test_story import paused_sale

HOSTILE = "</script><script>hacked()</script><!--<img src=x onerror=hacked()>"
FAULTS = {"pause": "SIGSTOP of the holder's node past the ttl"}


def run_of(sale: HistoryBuilder, lock: str, fault: str, **more: Any) -> Any:
    """A run as a summary has it."""
    judgement = sale.judge()
    return {
        "lock": lock,
        "fault": fault,
        "buyers": len(sale.last_requests),
        "hold_ms": 0,
        **judgement.as_run(),
        "expected": judgement.verdict,
        "as_expected": True,
        **more,
    }


def summary_of(*runs: Any) -> Any:
    machine = {"cpus": 2, "python": "3.11.7", "postgres": "18.4", "redis": "Valkey 9.1.2"}
    where = {"machine": machine, "nodes": 2, "workers": 2, "threads": 100}
    return {"started": "2026-11-21T05:00:00+00:00", **where, "runs": list(runs)}


def crowded_sale(run: str, buyers: int = 200, stock: int = 100) -> HistoryBuilder:
    """Everybody reads the full stock and sells a unit of it: the worst case without a lock."""
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
    """The report of a demo: so many buyers without a lock, and three with one."""
    none, redis = crowded_sale("a1", buyers), sequential_sale("b2")
    rush = {"buy_ms": {"p50": 310, "p95": 540, "max": 560}, "duration_s": 1.3}
    runs = [
        run_of(none, "none", "rush", attempts="a1", **rush),
        run_of(redis, "redis", "rush", attempts="b2", **rush),
    ]
    events = [*none.build().events, *redis.build().events]
    events.sort(key=lambda event: event["t"])
    return html_report.write(folder, summary_of(*runs), events, title="the rush")


def write_faults(folder: Path, **more: Any) -> Path:
    """The report of three cells: a pause breaks token but not redis, and a crash of redis."""
    token = paused_sale()
    redis, crash = (sequential_sale(f"9d1f/{fault}/redis") for fault in ("pause", "crash"))
    shown = {"story": tell_story(token.judge()), "evidence": "both in state T"}
    runs = [
        run_of(token, "token", "pause", **{**shown, **more}),
        run_of(redis, "redis", "pause", story=[], evidence="both in state T"),
        run_of(crash, "redis", "crash", story=[], expected="undersold", as_expected=False),
    ]
    events = [event for sale in (token, redis, crash) for event in sale.build().events]
    events.sort(key=lambda event: event["t"])
    return html_report.write(folder, summary_of(*runs), events, title="every fault", faults=FAULTS)


def write_every_fault(folder: Path) -> Path:
    """The report of every strategy under every fault; the pause of `token` is real, was healed at
    once, and is opened first."""
    faults = dict.fromkeys(fault for row in EXPECTED.values() for fault in row)
    names = [fault for fault in faults if not fault.startswith("rush")]
    token = paused_sale()
    fired = token.build().events[3]["t"]
    for phase, ms in (("fire", 0), ("heal", 1), ("fire", 2), ("heal", 3)):
        at = {"t": fired + ms * 1_000_000, "phase": phase, "what": phase}
        token.events.append(cast(Event, {"by": "fault", "f": "pause", "type": "ok", **at}))
    pause = run_of(token, "token", "pause", verdict="oversold", story=[])
    cells = [
        {**pause, "lock": lock, "fault": fault, "verdict": row[fault]}
        for lock, row in EXPECTED.items()
        for fault in names
        if fault in row
    ]
    events = sorted(token.build().events, key=lambda event: event["t"])
    return html_report.write(folder, summary_of(*cells), events, title="every fault", faults=FAULTS)
