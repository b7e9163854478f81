"""The hooks are make lint, and the development container runs make demo."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests import order
from tests.locked import ROOT
from tests.tooling import make, tool

HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())[
    "repos"
]


def test_the_hooks_are_the_commands_of_make_lint() -> None:
    (local,) = HOOKS
    assert local["repo"] == "local", "a hook of another repository would be downloaded"
    linted = [line for line in make("lint").splitlines() if re.match(r"\.venv/bin/\S+", line)]
    wanted = [line.removesuffix(" .") for line in linted if " -m pip " not in line]
    hooks = [hook["entry"].replace(" --force-exclude", "") for hook in local["hooks"]]
    assert hooks == wanted
    assert {hook["language"] for hook in local["hooks"]} == {"system"}


def test_a_commit_with_a_fault_that_ruff_finds_is_refused(tmp_path: Path) -> None:
    pre_commit = tool("pre-commit")
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@localhost", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    shutil.copy(ROOT / ".pre-commit-config.yaml", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "unsorted.py").write_text("import sys\nimport os\n")
    subprocess.run([*git, "add", "unsorted.py", ".pre-commit-config.yaml"], check=True)
    result = subprocess.run(
        [pre_commit, "run", "ruff"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "unsorted.py" in result.stdout


def test_the_development_container_is_plain_python_that_the_locks_know() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    version = re.search(r"python:(\d\.\d+)", container["image"])
    assert version
    assert version[1] in {"3.11", "3.12", "3.13"}
    assert container["postCreateCommand"] == "make install-dev"


def test_every_file_that_make_test_fast_names_is_there() -> None:
    """One that was renamed would end the command before its first test."""
    listed = re.search(
        r"^FAST = (.*?)\n\n", (ROOT / "Makefile").read_text(), re.DOTALL | re.MULTILINE
    )
    assert listed is not None
    names = listed[1].partition("addsuffix .py,")[2].replace("\\", " ").rstrip(")").split()
    assert len(names) > 10
    assert [n for n in names if not (ROOT / f"loadtest/tests/test_{n}.py").exists()] == []


@pytest.mark.parametrize("listed", [order.LONGEST, order.WHOLE], ids=["longest", "whole"])
def test_every_module_that_is_listed_for_make_test_is_there(listed: tuple[str, ...]) -> None:
    assert len(set(listed)) == len(listed)
    assert [name for name in listed if not (ROOT / name).exists()] == []


def test_every_module_is_run_by_one_of_make_test_and_make_test_whole_and_ci_runs_both() -> None:
    modules = {
        path.relative_to(ROOT).as_posix()
        for room in ROOT.iterdir()
        if room.is_dir() and not room.name.startswith(".") and room.name != "var"
        for path in room.rglob("tests/**/test_*.py")
    }
    assert set(order.WHOLE) < modules
    for whole in (False, True):
        config: Any = SimpleNamespace(
            args_source=pytest.Config.ArgsSource.TESTPATHS,
            rootpath=ROOT,
            getoption=lambda name, whole=whole: whole,
        )
        left_out = {name for name in modules if order.pytest_ignore_collect(ROOT / name, config)}
        assert left_out == (modules - set(order.WHOLE) if whole else set(order.WHOLE))
    script = (ROOT / ".ci" / "run").read_text()
    commands = {line.partition(" || ")[0] for line in script.splitlines()}
    assert {"make test", "make test-whole", "make test-workshop"} <= commands


def test_a_module_that_is_named_is_run_whatever_it_is() -> None:
    config: Any = SimpleNamespace(args_source=pytest.Config.ArgsSource.ARGS)
    assert order.pytest_ignore_collect(ROOT / order.WHOLE[0], config) is None


def test_the_longest_modules_go_first_and_each_stays_whole() -> None:
    first, second = order.LONGEST[:2]
    collected = ["a.py::one[::1]", f"{second}::x", "a.py::two", f"{first}::b", f"{first}::a"]
    items: Any = [SimpleNamespace(nodeid=nodeid) for nodeid in collected]
    order.pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == [
        *(f"{first}::b", f"{first}::a", f"{second}::x"),
        *("a.py::one[::1]", "a.py::two"),
    ]
    assert "--dist loadfile --no-loadscope-reorder" in make("test"), "else xdist sorts them again"
