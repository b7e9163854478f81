"""`python -m loadtest growth` on real nodes, with a waiting room and without."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.commands import growth
from loadtest.commands import run as commands
from loadtest.commands.run import Setting

BUYERS = 40


def test_a_rush_with_a_waiting_room_refuses_buyers_and_is_as_exact_as_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a room for two everybody else is refused, asks again, and gets an answer in the end."""
    monkeypatch.setattr(commands, "RESULTS", tmp_path / "results")
    setting = Setting(locks=("redis",), stock=10, hold_ms=20, workers=1)
    console = Console(file=io.StringIO(), width=160)
    plan = growth.Plan(sizes=(BUYERS,), nodes=(1,), limits=(0, 2))
    assert growth.run(plan, setting, console) == 0
    folder = tmp_path / "results" / "latest"
    without, limited = json.loads((folder / "summary.json").read_text())["runs"]
    for run in (without, limited):
        assert (run["verdict"], run["orders"], run["never_answered"]) == ("exact", 10, 0)
        assert run["outcomes"]["full"] == 0  # the last answer to nobody
        grown = run["grown"]
        assert 0 < grown["base_mb"] < grown["peak_mb"]
        assert grown["threads"] > BUYERS
        assert grown["cpu"]["nodes"] > 0
        assert {"Locust", "machine"} <= set(grown["cpu"])
    assert (without["requests"]["asked"], without["requests"]["full"]) == (BUYERS, 0)
    assert limited["requests"]["full"] == limited["requests"]["asked"] - BUYERS > 0
    assert (folder / "growth.md").read_text().count("**EXACT**") == 2
