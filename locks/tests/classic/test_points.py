"""The points: a name that nobody passes would make a fault that never fires."""

from __future__ import annotations

import re
from pathlib import Path

from ...classic import points


def test_the_points_that_are_documented_are_those_in_the_code() -> None:
    sources = Path(points.__file__).parent.glob("**/*.py")
    called = {
        name
        for source in sources
        if "tests" not in source.parts
        for name in re.findall(r'^\s+point\("([^"]+)"\)', source.read_text(), re.MULTILINE)
    }
    documented = set(re.findall(r"^([a-z-]+:[a-z_]+) +\S", points.__doc__ or "", re.MULTILINE))
    assert called == documented != set()


def test_a_hook_is_called_at_every_point_until_it_is_removed() -> None:
    passed: list[str] = []
    points.install(passed.append)
    points.point("here")
    points.install(None)
    points.point("there")
    assert passed == ["here"]
