"""The shops of examples/targets/, as far as they need nothing installed."""

from __future__ import annotations

import ast
from difflib import ndiff
from pathlib import Path

import pytest

from examples.targets import launch_fastapi
from examples.targets.shop import HERE
from loadtest.target.loading import load


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*_target.py")))
def test_every_target_can_be_loaded(name: str) -> None:
    assert load(HERE / name, "http://127.0.0.1:9").name == name.removesuffix("_target.py")


def test_the_repair_of_the_fastapi_shop_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.targets.shop.FOLDER", tmp_path)
    sources = []
    (tmp_path / "fastapi").mkdir()
    for repaired in (False, True):
        launch_fastapi.SHOP.prepare(repaired=repaired)
        sources.append((tmp_path / "fastapi" / "fastapi_shop.py").read_text())
        ast.parse(sources[-1])
    wrong, right = (source.splitlines() for source in sources)
    changed = [line[0] for line in ndiff(wrong, right)]
    assert [sign for sign in changed if sign in "+-"] == ["-", "+"]
