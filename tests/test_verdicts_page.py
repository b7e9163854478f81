"""docs/verdicts.md has every verdict and finding of the judge, and no other."""

from __future__ import annotations

import ast
import re

from loadtest.judge.verdict import EXIT_CODES
from servers.embedded import ROOT

VERDICTS, FINDINGS = (ROOT / "docs/verdicts.md").read_text().split("## Findings")


def rows(text: str) -> dict[str, str]:
    """The rows of a table whose first cell is a name in code style, by that name."""
    return {row[1]: row[0] for row in re.finditer(r"^\| `(\w+)`.*$", text, re.MULTILINE)}


def findings() -> set[str]:
    """Every finding that the judge's code makes."""
    calls = [
        node
        for path in sorted((ROOT / "loadtest").rglob("*.py"))
        if "tests" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding"
    ]
    return {ast.literal_eval(call.args[0]) for call in calls}


def test_the_page_has_every_verdict_with_its_exit_code_and_no_other() -> None:
    shown = {verdict: row.split("|")[-2].strip() for verdict, row in rows(VERDICTS).items()}
    assert shown == {verdict: str(code) for verdict, code in EXIT_CODES.items()}


def test_the_page_has_every_finding_and_no_other() -> None:
    assert rows(FINDINGS).keys() == findings()
