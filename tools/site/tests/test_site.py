"""The site opens from a folder, asks nobody for anything, and its links lead somewhere."""

import re
from pathlib import Path
from urllib.parse import unquote

from playwright.sync_api import Page

from tools.site import documents
from tools.site.__main__ import LIMIT, build, size


def html(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def targets(path: Path) -> list[str]:
    return re.findall(r'\b(?:href|src)="?([^\s">]+)', markup(path))


def markup(path: Path) -> str:
    """The page without its scripts and its code, whose text is no markup."""
    return re.sub(r"<(script|pre)\b(?![^>]*src).*?</\1>", "", path.read_text(), flags=re.DOTALL)


def broken(path: Path, site: Path) -> list[str]:
    found = []
    for target in targets(path):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        there = (path.parent / name).resolve() if name else path
        inside = there.is_file() and there.is_relative_to(site)
        known = (
            not anchor or "/" in anchor or f'id="{anchor}"' in (there.read_text() if inside else "")
        )
        if not (inside and known):
            found.append(target)
    return found


def test_every_link_leads_to_a_page_of_the_site(site: Path) -> None:
    assert {page.name: broken(page, site) for page in html(site) if broken(page, site)} == {}


def test_nothing_is_loaded_from_elsewhere(site: Path, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in html(site):
        page.goto(path.as_uri())
    assert len(asked) > len(html(site))
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_it_is_small_and_two_builds_are_the_same(site: Path, tmp_path: Path) -> None:
    assert size(site) < LIMIT
    again = build(tmp_path / "again", tmp_path / "staged")
    files = {
        path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()
    }
    assert files == {
        path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()
    }


def test_every_document_is_two_clicks_from_the_first_page(site: Path) -> None:
    def leads_to(path: Path) -> set[Path]:
        names = (target.partition("#")[0] for target in targets(path))
        return {(path.parent / name).resolve() for name in names if name.endswith(".html")}

    first = leads_to(site / "index.html")
    reached = set.union(first, *(leads_to(path) for path in first))
    pages = [path for paths in documents.documents().values() for path in paths]
    assert len(pages) > 30
    wanted = {(site / documents.staged(path)).with_suffix(".html") for path in pages}
    assert wanted - reached == set()
