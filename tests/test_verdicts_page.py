"""docs/verdicts.md has every verdict and finding of the judge, and no other."""

from __future__ import annotations

import ast
import re

from tests.code import ROOT, calls, constant, the_file

PAGE = (ROOT / "docs/verdicts.md").read_text()
VERDICTS, FINDINGS = PAGE.split("## Findings")


def rows(text: str) -> dict[str, str]:
    """The rows of a table whose first cell is a name in code style, by that name."""
    return {row[1]: row[0] for row in re.finditer(r"^\| `(\w+)`.*$", text, re.MULTILINE)}


#: What the judge's code says of a finding's weight, and how the page marks it.
MARKS = {
    "spoils=False": "(does not spoil)",
    "spoils=record.asked.undisturbed": "(spoils a rush)",
    "spoils=not explains": "(does not spoil beside `lost_update`)",
    "voids=True": "(voids)",
}


def findings() -> dict[str, set[str]]:
    """Every finding that the judge's code makes, and the marks that it needs on the page."""
    found: dict[str, set[str]] = {}
    for call in calls("loadtest", "Finding"):
        name = call.args[0]
        assert isinstance(name, ast.Constant), ast.unparse(call)
        weights = {ast.unparse(word) for word in call.keywords if word.arg in {"spoils", "voids"}}
        assert weights <= MARKS.keys(), ast.unparse(call)
        found.setdefault(str(name.value), set()).update(MARKS[weight] for weight in weights)
    return found


def test_the_page_has_every_verdict_with_its_exit_code_and_no_other() -> None:
    codes = constant(the_file("loadtest", "verdict.py"), "EXIT_CODES")
    assert isinstance(codes, dict)
    assert rows(VERDICTS).keys() == codes.keys()
    for verdict, row in rows(VERDICTS).items():
        assert row.split("|")[-2].strip() == str(codes[verdict]), row


def test_the_page_has_every_finding_and_no_other() -> None:
    assert rows(FINDINGS).keys() == findings().keys()


def test_the_page_marks_what_a_finding_does_to_the_verdict() -> None:
    for name, marks in findings().items():
        found = {mark for mark in MARKS.values() if mark in rows(FINDINGS)[name]}
        assert found == marks, name


def test_the_page_says_after_how_many_ttl_it_is_a_deadlock() -> None:
    verdict = the_file("loadtest", "verdict.py")
    name = re.search(r"(\w+) \* ttl", verdict.read_text())
    assert name
    assert f"{constant(verdict, name[1])} x ttl" in rows(VERDICTS)["deadlock"]
