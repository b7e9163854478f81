"""Faults for real: one pause and one late release, with the strategies that they tell apart."""

from __future__ import annotations

import io
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadtest import results
from loadtest.faults import FAULTS, chaos, command, fault_report
from loadtest.faults.column import Cell, play
from loadtest.faults.late_release import LateRelease
from loadtest.faults.pause import Pause
from loadtest.faults.scene import Scene
from loadtest.faults.slow import Slow
from loadtest.faults.stage import VICTIMS, Stage
from loadtest.stack import ROOT, StackError
from shop import embedded

#: Read by every Python that starts with its folder in PYTHONPATH: SetpxDelLock with its flaw gone.
REPAIRED = """\
from locks.classic import setpx_del, token
setpx_del.SetpxDelLock.unlock = token.TokenLock.unlock
"""


#: The same for RedisLock, with no thread that renews.
NEVER_RENEWED = """\
from locks import watchdog
watchdog.Watchdog.add = lambda watchdog, renewal: None
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with pytest.MonkeyPatch.context() as patch:
        for name in command.EXTERNAL:
            patch.delenv(name, raising=False)
        log = tmp_path_factory.mktemp("stage") / "log"
        with (
            log.open("wb") as file,
            Stage(log=file, progress=lambda step: None, threads=32) as stage,
        ):
            yield stage


def cells(stage: Stage, fault: Any, *locks: str) -> dict[str, Cell]:
    known = [one for one in stage.shop().strategies() if one["name"] in locks]
    return {cell["lock"]: cell for cell in play(stage, fault, known, secrets.token_hex(4))}


@contextmanager
def changed(stage: Stage, folder: Path, how: str) -> Iterator[None]:
    """Both nodes run with this change to the locks for as long as the block lasts."""
    (folder / "sitecustomize.py").write_text(how)
    try:
        for node in range(2):
            stage.restart(node, PYTHONPATH=f"{folder}:{ROOT}")
        yield
    finally:
        for node in range(2):
            stage.restart(node)


def told(cell: Cell, *wanted: str) -> None:
    """The story has lines like these, in this order."""
    assert re.search(".*".join(wanted), "\n".join(cell["story"]), re.DOTALL), cell["story"]


def test_a_paused_holder_of_token_oversells_and_one_of_redis_does_not(stage: Stage) -> None:
    found = cells(stage, Pause(), "token", "redis", "row-lock")
    assert {lock: cell["verdict"] for lock, cell in found.items()} == {
        "token": "oversold",
        "redis": "exact",
        "row-lock": "exact",
    }
    assert all(cell["as_expected"] for cell in found.values())
    assert set(found["token"]["violations"]) == {"lost_update", "overlap", "stale_write"}
    told(
        found["token"],
        r"victim \(A\) has the lock",
        "victim reads a stock of 10",
        "SIGSTOP",
        r"rival-1 \(B\) has the lock: two holders",
        "victim sells order",
        "rival-1 sells .*: the decrement of order [0-9]+ is lost",
    )
    assert "state T" in found["token"]["evidence"]


def test_a_late_plain_del_lets_a_second_holder_in_beside_the_next(stage: Stage) -> None:
    found = cells(stage, LateRelease(), "setpx-del", "token")
    assert {lock: cell["verdict"] for lock, cell in found.items()} == {
        "setpx-del": "oversold",
        "token": "exact",
    }


def test_a_strategy_whose_flaw_is_removed_is_reported_as_no_longer_failing(
    stage: Stage, tmp_path: Path
) -> None:
    with changed(stage, tmp_path, REPAIRED):
        cell = cells(stage, LateRelease(), "setpx-del")["setpx-del"]
    assert (cell["verdict"], cell["expected"], cell["as_expected"]) == ("exact", "oversold", False)
    assert fault_report.complaint(cell) == (
        "setpx-del under late-release: exact, expected oversold"
    )


class NeverFires(Pause):
    """A pause that is announced and not made."""

    def fire(self, stage: Stage, scenes: Sequence[Scene]) -> None:
        self.pids = stage.pids(VICTIMS)


def test_a_fault_that_did_not_fire_shows_nothing(stage: Stage) -> None:
    cell = cells(stage, NeverFires(), "redis")["redis"]
    assert (cell["verdict"], cell["as_expected"]) == ("unknown", False)
    assert cell["missing"] == "pause: a process of node A runs on"


class Breaks(Pause):
    """A pause in which the harness itself fails."""

    def part(self, scene: Scene) -> None:
        raise ZeroDivisionError("an error of ours")


def test_an_error_of_the_harness_never_looks_like_a_pass(stage: Stage) -> None:
    cell = cells(stage, Breaks(), "redis")["redis"]
    assert (cell["verdict"], cell["as_expected"]) == ("unknown", False)
    assert cell["missing"] == "ZeroDivisionError: an error of ours"


def test_a_lock_that_lets_two_in_is_found_though_its_fence_repairs_it(
    stage: Stage, tmp_path: Path
) -> None:
    """RedisLock, and nobody renews it: under `slow` a rival comes in, and the fence decides."""
    with changed(stage, tmp_path, NEVER_RENEWED):
        cell = cells(stage, Slow(), "redis")["redis"]
    assert (cell["verdict"], cell["as_expected"]) == ("exact", False)
    assert cell["wrong"] == ["two holders at a time, and the fault took no lock away"]


def test_a_strategy_whose_server_is_missing_is_said_to_be_not_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (known,) = (one for one in stage.shop().strategies() if one["name"] == "zookeeper")
    for ci in ("", "true"):
        monkeypatch.setenv("CI", ci)
        (cell,) = play(stage, Pause(), [{**known, "available": False}], "run")
        assert (cell["verdict"], cell["as_expected"]) == ("not_run", not ci)
        assert cell["missing"] == "ZOOKEEPER_HOSTS is not set, and no such server is installed"


def test_every_fault_of_the_registry_can_be_made_and_none_is_made_for_nobody(
    stage: Stage,
) -> None:
    expected = {f for one in stage.shop().strategies() for f in one["expected"]}
    assert expected - {"rush", "rush-one-process"} == set(FAULTS)


def test_chaos_stops_at_a_violation_with_the_seed_and_its_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chaos, "SOUND", ("none",))
    monkeypatch.setattr(chaos, "COME_WITHIN", 0.05)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    base = tmp_path / "results"
    monkeypatch.setattr(chaos, "RESULTS", base)
    monkeypatch.setattr(chaos, "result_folder", partial(results.result_folder, base=base))
    for name in command.EXTERNAL:
        monkeypatch.delenv(name, raising=False)
    said = io.StringIO()
    assert chaos.run(1, 5, Console(file=said, width=120)) == 1
    assert "none: oversold" in said.getvalue()
    assert re.search("1 rushes, .* 1 violations; seed 5", said.getvalue())
    kept = base / "latest"
    assert json.loads((kept / "chaos.json").read_text())["seed"] == 5
    assert (kept / "history.jsonl").stat().st_size > 0


# --- the commands -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", command.EXTERNAL)
def test_no_fault_is_made_on_somebody_elses_servers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in command.EXTERNAL:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    command.refuse_others_servers()
    monkeypatch.setenv(name, "redis://example.test")
    with pytest.raises(StackError, match=f"{name} is set, .*unset it"):
        command.run(command.Chosen(), Console(quiet=True))
    with pytest.raises(StackError, match=f"{name} is set, .*unset it"):
        chaos.run(1, 1, Console(quiet=True))


def test_an_unknown_fault_is_refused_with_the_known_ones() -> None:
    with pytest.raises(StackError, match="unknown fault: earthquake; there are crash, slow"):
        command.run(command.Chosen(faults=["earthquake"]), Console(quiet=True))


def test_faults_that_concern_none_of_the_locks_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    for name in command.EXTERNAL:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StackError, match="none of these faults concerns any of these locks"):
        command.run(command.Chosen(["quorum"], ["token"]), Console(quiet=True))


def test_a_seed_repeats_the_order_of_the_faults() -> None:
    orders = [command.order(command.Chosen(seed=seed)) for seed in (7, 7, 8)]
    assert orders[0] == orders[1] != orders[2]
    assert set(orders[0]) == set(FAULTS)
    assert command.order(command.Chosen()) == list(FAULTS)
