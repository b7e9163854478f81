"""Which faults are made, under which strategies, and what is refused."""

from __future__ import annotations

import pytest
from rich.console import Console

from loadtest.commands import chaos
from loadtest.commands import faults as command
from loadtest.expected import EXPECTED
from loadtest.faults import FAULTS
from loadtest.stack.stack import StackError
from servers import embedded


def test_every_fault_of_the_table_exists_and_every_fault_is_in_the_table() -> None:
    expected = {fault for row in EXPECTED.values() for fault in row}
    assert expected - {"rush", "rush-one-process"} == set(FAULTS)


@pytest.mark.parametrize("name", command.EXTERNAL)
def test_no_fault_is_made_on_servers_that_the_run_did_not_start(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in command.EXTERNAL:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setattr(embedded, "read_env", lambda: None)
    command.refuse_external_servers()
    monkeypatch.setenv(name, "redis://example.test")
    with pytest.raises(StackError, match=f"{name} is set, .*unset it"):
        command.run(command.Chosen(), Console(quiet=True))
    with pytest.raises(StackError, match=f"{name} is set, .*unset it"):
        chaos.run(chaos.Chosen(), Console(quiet=True))


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
