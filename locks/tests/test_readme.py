"""The READMEs are true: every named test exists (their examples are run by test_package.py)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]


def test_every_pitfall_has_a_test_or_says_where_it_is_tested() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", (HERE / "tests/README.md").read_text(), re.M)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    defined = set()
    for file in (HERE / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"^def (test_\w+)", file.read_text(), re.M))
    for number, where in rows:
        named = re.findall(r"`(test_\w+)`", where)
        assert named or where in ("later", "shop"), number
        assert set(named) <= defined, number


def test_the_locks_import_nothing_but_redis_py_or_valkey_py() -> None:
    for file in [*HERE.glob("*.py"), *HERE.glob("aio/*.py")]:
        imported = re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.M)
        assert set(imported) <= sys.stdlib_module_names | {"redis", "valkey"}, file
