"""What CI runs, and that nobody else can change it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.locked import ROOT
from tools.lock import PYTHONS

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CI: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
STEPS: list[dict[str, Any]] = CI["jobs"]["test"]["steps"]


def uses(text: str) -> list[str]:
    return re.findall(r"uses:\s*(.+)", text)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_with_its_version_beside_it(workflow: Any) -> None:
    found = uses(workflow.read_text())
    assert found
    for action in found:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_the_workflow_may_only_read_and_keeps_no_credentials() -> None:
    assert CI["permissions"] == {"contents": "read"}
    (checkout,) = (step for step in STEPS if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["persist-credentials"] is False


def test_the_next_push_ends_a_run_that_is_still_on() -> None:
    assert CI["concurrency"]["cancel-in-progress"] is True
    assert "github.ref" in CI["concurrency"]["group"]


def test_it_runs_on_every_python_of_the_locks_on_linux_and_macos() -> None:
    matrix = CI["jobs"]["test"]["strategy"]["matrix"]
    assert tuple(matrix["python"]) == PYTHONS
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]


def test_a_failed_run_keeps_its_results() -> None:
    (kept,) = (s for s in STEPS if s.get("uses", "").startswith("actions/upload-artifact@"))
    assert kept["if"] == "failure()"
    assert "results/" in kept["with"]["path"]


def test_a_database_that_is_not_reachable_fails_there_and_not_in_ci_run() -> None:
    assert CI["jobs"]["test"]["env"]["AUDIT_REQUIRED"] == "1"
    script = (ROOT / ".ci/run").read_text()
    assert "\nmake audit\n" in script
    assert "\nmake sbom\n" in script
    assert "AUDIT_REQUIRED" not in script


def test_dependabot_looks_at_packages_actions_and_images() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    assert {each["package-ecosystem"] for each in updates} >= {"pip", "github-actions", "docker"}
