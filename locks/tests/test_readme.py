"""The READMEs are true: the examples run in a copied folder, and every named test exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import redis

from ..testing.server import Server

HERE = Path(__file__).parents[1]


def test_the_folder_copied_beside_nothing_but_redis_py_runs_its_examples(
    server: Server, tmp_path: Path
) -> None:
    left_behind = shutil.ignore_patterns("tests", "bench", "classic", "__pycache__")
    shutil.copytree(HERE, tmp_path / "locks", ignore=left_behind)
    (tmp_path / "redis").symlink_to(Path(redis.__file__).parent)
    examples = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.DOTALL)
    program = "\n".join(examples).replace("redis.Redis()", f"redis.Redis(port={server.port})")
    done = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "released" in done.stdout


def test_every_pitfall_has_a_test_or_says_where_it_is_tested() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", (HERE / "tests/README.md").read_text(), re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 42))
    defined = set()
    for file in (HERE / "tests").glob("test_*.py"):
        defined |= set(re.findall(r"^def (test_\w+)", file.read_text(), re.M))
    for number, where in rows:
        named = re.findall(r"`(test_\w+)`", where)
        assert named or where in ("later", "shop"), number
        assert set(named) <= defined, number


def test_the_locks_import_nothing_but_redis_py() -> None:
    for file in HERE.glob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.M)
        assert set(imported) <= sys.stdlib_module_names | {"redis"}, file
