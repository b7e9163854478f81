"""The fixture `clone` (a fresh clone of the repository) and make_summary(), for the tests here."""

from typing import Any

from loadtest.tests.conftest import clone

__all__ = ["clone", "make_summary"]


def make_summary(*runs: dict[str, Any]) -> Any:
    """Return the content of a summary.json with these runs, as a command of loadtest writes it."""
    return {
        "started": "2026-01-02T03:04:05",
        "machine": {"cpus": 2, "python": "3.13.1", "postgres": "18.1", "redis": "Valkey 9"},
        "nodes": 2,
        "workers": 2,
        "threads": 100,
        "runs": list(runs),
    }
