"""The shops of examples/targets/, as far as they need nothing installed."""

from __future__ import annotations

import ast
from difflib import ndiff
from pathlib import Path

import pytest

from examples.targets import shops
from examples.targets.shops import HERE, SHOPS
from loadtest.target.loading import load


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*_target.py")))
def test_every_target_can_be_loaded(name: str) -> None:
    assert load(HERE / name, "http://127.0.0.1:9").name == name.removesuffix("_target.py")


def test_the_repair_of_the_fastapi_shop_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shops, "VAR", tmp_path)
    sources = []
    SHOPS["fastapi"].folder.mkdir(parents=True)
    for repaired in (False, True):
        shops.prepare_fastapi(SHOPS["fastapi"], repaired)
        sources.append((SHOPS["fastapi"].folder / "fastapi_shop.py").read_text())
        ast.parse(sources[-1])
    wrong, right = (source.splitlines() for source in sources)
    changed = [line[0] for line in ndiff(wrong, right)]
    assert [sign for sign in changed if sign in "+-"] == ["-", "+"]
