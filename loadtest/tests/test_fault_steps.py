"""A fault of which one step raises: its cells are `unknown`, and the testbed is repaired."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, cast

import pytest

from loadtest.faults import Fault, runner
from loadtest.faults.fault import NotFired
from loadtest.faults.testbed import Testbed
from loadtest.faults.trial import Trial
from loadtest.stack.client import Strategy

LOCKS = ("token", "redis")


def strategy(name: str) -> Strategy:
    """As much of a strategy as these tests and those of the command look at."""
    known = {"name": name, "backend": "redis", "available": True, "reserves": False}
    return cast(Strategy, {**known, "renewed": True, "deferred": False})


class Breaks(Fault):
    """A fault of which one step raises."""

    name = "crash"
    title = "breaks"

    def __init__(self, step: str, error: Exception) -> None:
        super().__init__()
        self.step, self.error = step, error
        self.healed = False

    def _do(self, step: str) -> None:
        if step == self.step:
            raise self.error

    def arm(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self._do("arm")

    def enter(self, trial: Trial) -> None: ...

    def fire(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self._do("fire")

    def prove(self, testbed: Testbed, trials: Sequence[Trial]) -> str:
        self._do("prove")
        return "seen"

    def act(self, trial: Trial) -> None: ...

    def meanwhile(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self._do("meanwhile")

    def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
        self.healed = True
        self._do("heal")

    def clean_up(self, testbed: Testbed) -> None:
        self._do("clean_up")


class Quiet:
    """As much of a testbed as a fault needs that does nothing."""

    def __init__(self) -> None:
        self.log = io.BytesIO()

    def new_events(self) -> list[Any]:
        return []

    events = new_events

    def keys_on_lock_servers(self) -> set[str]:
        return set()

    def record_fault(self, *_: object) -> None: ...

    def set_ttl(self, seconds: float) -> None: ...


@pytest.mark.parametrize("step", ["arm", "fire", "prove", "meanwhile", "heal", "clean_up"])
@pytest.mark.parametrize("error", [NotFired("crash: not so"), OSError("no such process")])
def test_whatever_step_breaks_the_cells_are_unknown_and_the_testbed_is_repaired(
    monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    repaired: list[object] = []
    monkeypatch.setattr(runner, "repair", repaired.append)
    monkeypatch.setattr(runner, "drain", lambda trial: None)
    monkeypatch.setattr(Trial, "open", lambda trial: None)
    monkeypatch.setattr(Trial, "orphans", lambda trial: [])
    monkeypatch.setattr(runner, "cell", lambda *_: None)  # judged before anything is cleaned up
    testbed, fault = Quiet(), Breaks(step, error)
    found = runner.play(cast(Testbed, testbed), fault, [strategy(name) for name in LOCKS], "run")
    why = "crash: not so" if isinstance(error, NotFired) else "OSError: no such process"
    assert [(one["lock"], one["verdict"], one["missing"]) for one in found] == [
        (lock, "unknown", why) for lock in LOCKS
    ]
    assert repaired == [testbed]
    assert fault.healed
    assert why.encode() in testbed.log.getvalue()


def test_the_reason_is_what_broke_first_and_not_what_that_led_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class BreaksTwice(Breaks):
        def heal(self, testbed: Testbed, trials: Sequence[Trial]) -> None:
            raise AttributeError("nothing to heal")

    monkeypatch.setattr(runner, "repair", lambda testbed: None)
    monkeypatch.setattr(Trial, "open", lambda trial: None)
    fault = BreaksTwice("fire", OSError("no such process"))
    (found,) = runner.play(cast(Testbed, Quiet()), fault, [strategy("token")], "run")
    assert found["missing"] == "OSError: no such process"
