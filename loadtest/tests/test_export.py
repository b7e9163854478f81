"""A history as operations for a checker of linearizability."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from loadtest.judge import export
from loadtest.judge.history import write
from loadtest.tests.recorded import SALE, RecordedRush
from servers.embedded import ROOT


def linearizable(operations: list[dict[str, Any]], units: int) -> bool:
    """Whether some order of the purchases, each between its two events, fits the model. By trying
    them all: for a handful."""
    begun = {o["process"]: o["time"] for o in operations if o["type"] == "invoke"}
    ended = {o["process"]: o for o in operations if o["type"] == "ok"}

    def fits(left: frozenset[int], n: int) -> bool:
        if not left:
            return True
        first_end = min(ended[p]["time"] for p in left)
        for process in left:
            if begun[process] > first_end:
                continue
            sold = ended[process]["value"] == "sold"
            if sold == (n > 0) and fits(left - {process}, n - sold):
                return True
        return False

    return fits(frozenset(ended), units)


def test_a_history_becomes_operations_that_a_checker_takes() -> None:
    operations = export.operations(RecordedRush(stock=4).happened.history().events)
    assert [o["index"] for o in operations] == list(range(12))
    assert operations[0] == {
        "index": 0, "process": 0, "f": "buy", "type": "invoke", "value": None,
        "time": 1_000_000, "sale": SALE, "attempt": "buyer-0",
    }  # fmt: skip
    assert [o["value"] for o in operations if o["type"] == "ok"] == ["sold"] * 4 + ["sold_out"] * 2
    assert linearizable(operations, 4)
    assert not linearizable(operations, 3)
    assert not linearizable(operations, 5)


def test_what_may_have_happened_is_info_what_did_not_is_fail_and_a_replay_is_none() -> None:
    rush = RecordedRush(stock=4)
    rush.answer(0, "unknown")
    rush.answer(4, "busy")
    rush.happened.asks(300, "buyer-0")
    rush.happened.answered(310, "buyer-0", "sold", 31)
    rush.happened.events[-1]["replayed"] = True
    ends = [o for o in export.operations(rush.happened.history().events) if o["type"] != "invoke"]
    assert [(o["attempt"], o["type"], o["value"]) for o in ends] == [
        ("buyer-0", "info", None),
        ("buyer-1", "ok", "sold"),
        ("buyer-2", "ok", "sold"),
        ("buyer-3", "ok", "sold"),
        ("buyer-4", "fail", None),
        ("buyer-5", "ok", "sold_out"),
    ]


def test_the_command_prints_json_or_edn_of_a_sale_and_names_what_it_cannot_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.jsonl"
    write(path, RecordedRush(stock=1, buyers=2).happened.history().events)

    def export_of(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "loadtest.judge.export", str(path), *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)

    lines = export_of("--sale", str(SALE)).stdout.splitlines()
    assert [json.loads(line)["value"] for line in lines] == [None, "sold", None, "sold_out"]
    assert export_of("--sale", "8").stdout == ""
    assert export_of("--edn").stdout.splitlines()[3] == (
        '{:index 3, :process 1, :f :buy, :type :ok, :value :sold-out, :time 39000000, '
        f':sale {SALE}, :attempt "buyer-1"}}'
    )  # fmt: skip
    path.write_text("no history\n")
    refused = export_of()
    assert refused.returncode == 2
    assert "cannot be exported: history.jsonl has a line that is no event" in refused.stderr
