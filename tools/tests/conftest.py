"""The load test's fixtures for the tests of tools that run it."""

from typing import Any

from loadtest.tests.conftest import clone

__all__ = ["clone", "summary"]


def summary(*runs: dict[str, Any]) -> Any:
    """Return the summary.json of these runs."""
    return {
        "started": "2026-01-02T03:04:05",
        "machine": {"cpus": 2, "python": "3.13.1", "postgres": "18.1", "redis": "Valkey 9"},
        "nodes": 2,
        "workers": 2,
        "threads": 100,
        "runs": list(runs),
    }
