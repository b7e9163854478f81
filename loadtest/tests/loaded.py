"""A summary of a load run, made up."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from loadtest.commands.load import conclusion, medians
from loadtest.judge.run import Summary
from loadtest.load.chosen import Chosen
from loadtest.load.figures import Measured, Sale, Window, figures

MACHINE = {"cpus": 2, "python": "3.12.1", "postgres": "18.0", "redis": "Valkey 9.1"}


def run_of(lock: str, verdict: str = "exact", *, number: int = 1, **more: Any) -> Any:
    """One run of ten seconds with a sale every 0.1 s, each slower than the one before."""
    at = [n / 10 for n in range(100)]
    sales = [Sale(0, n % 2, n, t, t, t + 0.01 * (n + 1), "sold", n) for n, t in enumerate(at)]
    cpu = {"nodes": 0.2, "PostgreSQL": None, "Valkey": 0.0, "Locust": 0.05, "machine": 4.0}
    found = Measured(sales, Window(0.0, 10.0), cpu, busy=0.2, most_in_flight=2)
    product = {"product": "load-001", "sale": 1, "asked": 500, "orders": 100, "left": 400}
    run = {
        "lock": lock,
        "fault": "rush",
        "expected": "oversold" if lock == "none" else "exact",
        "verdict": verdict,
        "why": "",
        "round": number,
        "buyers": 100,
        "clients": 2,
        "arrivals_per_second": None,
        "lost_updates": 0,
        "settlement_lag_ms": None,
        "products": [product],
        **figures(found, clients=2, is_open=False),
        **more,
    }
    return {**run, **conclusion(run, found)}


def summary_of(*runs: Any, **asked: Any) -> Summary:
    chosen = Chosen(locks=list(dict.fromkeys(run["lock"] for run in runs)), **asked)
    summary: Any = {
        "started": "2026-01-02T03:04:05+00:00",
        "machine": MACHINE,
        "nodes": 2,
        "workers": 2,
        "threads": 32,
        "runs": list(runs),
        "rounds": chosen.rounds,
        "load": asdict(chosen),
        "medians": medians(runs),
    }
    return summary  # type: ignore[no-any-return]


def usual() -> Summary:
    """Two strategies in three rounds: one exact, one that lost decrements before it ran out."""
    runs = [
        run_of(lock, "unknown" if lock == "none" else "exact", number=number,
               lost_updates=7 if lock == "none" else 0)
        for number in (1, 2, 3)
        for lock in ("none", "redis")
    ]  # fmt: skip
    return summary_of(*runs, rounds=3)
