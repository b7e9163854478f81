"""Every link of the documents leads to something that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadtest.tests.checkout import files
from servers.embedded import ROOT

DOCUMENTS = [ROOT / name for name in files(ROOT) if name.endswith(".md")]


def prose(text: str) -> str:
    """The text without its blocks of code, whose brackets are no links."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    """The targets of links and pictures that are not on the web."""
    found = re.findall(r"\]\(([^)\s]+)[^)]*\)", prose(text))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings have on GitHub."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings(text))
    return {each.strip().replace(" ", "-") for each in words}


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for target in links(text):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        lost = not there.exists() or not there.is_relative_to(ROOT)
        if lost or (anchor and there.suffix == ".md" and anchor not in anchors(there.read_text())):
            found.append(target)
    return found


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_something_of_the_repository(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_a_link_to_nothing_is_found() -> None:
    text = "[a](docs/sources.md) [b](docs/none.md) ![c](x.png) [d](https://x) [e](README.md#none)"
    text += "\n```\n[f](in-code.md)\n```\n[g](../outside.md) [h](README.md#read-it)"
    assert broken(ROOT / "README.md", text) == [
        *("docs/none.md", "x.png", "README.md#none", "../outside.md")
    ]
