"""Ctrl-C ends a shop that was left running."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from examples.targets import __main__ as launcher
from servers import embedded, signals


@contextmanager
def running(*, repaired: bool) -> Iterator[str]:
    yield "http://127.0.0.1:8001"


def test_ctrl_c_ends_it_where_a_script_had_sigint_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = SimpleNamespace(running=running, rush_command=lambda url: ["rush"])

    def ctrl_c(seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it sleeps on")

    monkeypatch.setattr(launcher, "SHOPS", {"oscar": shop})
    monkeypatch.setattr(launcher, "time", SimpleNamespace(sleep=ctrl_c))
    monkeypatch.setattr(embedded, "detach", lambda: None)
    monkeypatch.setattr(signals, "_is_ending", False)
    before = {one: signal.getsignal(one) for one in signals.ENDING}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert launcher.main(["oscar"]) == 130
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
