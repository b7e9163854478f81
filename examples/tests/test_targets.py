"""Tests of examples/targets/ that install no shop: its target files, its repairs and Ctrl-C."""

import ast
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import ndiff
from pathlib import Path
from types import SimpleNamespace

import pytest

from examples.targets import __main__ as launcher
from examples.targets.__main__ import HERE, SHOPS
from loadtest.target.target import load_target_file
from servers import embedded, signals


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*_target.py")))
def test_every_target_can_be_loaded(name: str) -> None:
    target = load_target_file(HERE / name, "http://127.0.0.1:9")
    assert target.name == name.removesuffix("_target.py")


@pytest.mark.parametrize("name", launcher.REPAIRS)
def test_repair_changes_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shop's source is copied twice, as it is and repaired. The copies differ in one line."""
    monkeypatch.setattr(launcher, "VAR", tmp_path)
    shop = SHOPS[name]
    sources = []
    shop.folder.mkdir(parents=True)
    for repaired in (False, True):
        launcher.copy_source(shop, repaired)
        sources.append((shop.folder / f"{name}_shop.py").read_text())
        ast.parse(sources[-1])  # raises SyntaxError if the repair broke the file
    original_lines, repaired_lines = (source.splitlines() for source in sources)
    signs = [line[0] for line in ndiff(original_lines, repaired_lines)]
    assert [sign for sign in signs if sign in "+-"] == ["-", "+"]


@contextmanager
def pretend_to_run(*, repaired: bool) -> Iterator[str]:
    """Yield a URL as ExampleShop.running() does, without starting a shop."""
    yield "http://127.0.0.1:8001"


def test_ctrl_c_ends_a_shop_that_inherits_ignored_sigint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's background process (`&`) starts with SIGINT ignored. Ctrl-C must still end it."""
    shop = SimpleNamespace(running=pretend_to_run, rush_arguments=())

    def press_ctrl_c(seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the shop did not end")

    monkeypatch.setattr(launcher, "SHOPS", {"oscar": shop})
    monkeypatch.setattr(launcher, "time", SimpleNamespace(sleep=press_ctrl_c))
    # Without these two lines, main() would stop the embedded servers, which other tests need, and
    # mark the process as ending.
    monkeypatch.setattr(embedded, "detach", lambda: None)
    monkeypatch.setattr(signals, "_is_ending", False)
    original_handlers = {number: signal.getsignal(number) for number in signals.ENDING_SIGNALS}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert launcher.main(["oscar"]) == 130
    finally:
        for number, handler in original_handlers.items():
            signal.signal(number, handler)
