"""The site opens from a folder, loads nothing from other hosts, and has no broken links."""

import os
import re
import subprocess
import sys
from html import unescape
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Page

from servers.embedded import ROOT
from tools.site import api_reference, documents, sources
from tools.site.__main__ import MAX_BYTES, size


def html(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def targets(path: Path) -> list[str]:
    return re.findall(r'\b(?:href|src)="?([^\s">]+)', markup(path))


def markup(path: Path) -> str:
    """Return a page without its scripts and its code, whose text is no markup."""
    return re.sub(r"<(script|pre)\b(?![^>]*src).*?</\1>", "", path.read_text(), flags=re.DOTALL)


def broken(path: Path, site: Path) -> list[str]:
    broken_links = []
    for target in targets(path):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        page = (path.parent / name).resolve() if name else path
        inside = page.is_file() and page.is_relative_to(site)
        has_anchor = (
            not anchor or "/" in anchor or f'id="{anchor}"' in (page.read_text() if inside else "")
        )
        if not (inside and has_anchor):
            broken_links.append(target)
    return broken_links


def test_every_link_of_the_site_has_a_target(site: Path) -> None:
    assert {page.name: broken(page, site) for page in html(site) if broken(page, site)} == {}


def test_page_loads_only_local_files(site: Path, page: Page) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for path in html(site):
        page.goto(path.as_uri())
    assert len(requests) > len(html(site))
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_it_is_small_and_two_builds_are_the_same(site: Path, tmp_path: Path) -> None:
    """The second build iterates over its sets in another order."""
    assert size(site) < MAX_BYTES
    again = tmp_path / "again"
    code = (
        "import sys, pathlib, tools.site.__main__ as it; it.build(*map(pathlib.Path, sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, str(again), str(tmp_path / "staged")]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
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
    expected_pages = {(site / documents.staged(path)).with_suffix(".html") for path in pages}
    assert expected_pages - reached == set()


def test_code_to_copy_is_shown_whole(site: Path) -> None:
    """It concerns the source pages of files in locks/, examples/ and the other COPIED folders."""
    published = {
        str(page.relative_to(site / "source")).removesuffix(".html"): page.read_text()
        for page in (site / "source").rglob("*.html")
        if page.name != "index.html"
    }
    copied = [name for name in published if sources.is_copied(ROOT / name)]
    assert {"locks/one_file.py", "locks/redis_lock.py", "examples/checkout.py"} <= set(copied)
    assert {
        name for name in copied if text_of(published[name]) != (ROOT / name).read_text()
    } == set()


def text_of(source_page: str) -> str:
    """Return the text of the file that a source page shows."""
    (text,) = re.findall(r"<pre>(.*?)</pre>", source_page, re.DOTALL)
    return unescape(text)


def test_cut_file_shows_where_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_LINES", 3)
    sources.stage(ROOT / "shop" / "settings.py", tmp_path)
    page = (tmp_path / "source" / "shop" / "settings.py.html").read_text()
    lines = (ROOT / "shop" / "settings.py").read_text().splitlines()
    assert text_of(page).splitlines() == lines[:3]
    assert (
        f"The first 3 of {len(lines)} lines; the rest is in <code>shop/settings.py</code>" in page
    )


def test_folder_pages_link_to_their_files(site: Path) -> None:
    folders = sorted((site / "source").rglob("index.html"))
    assert folders
    for page in folders:
        folder = ROOT / page.parent.relative_to(site / "source")
        names = {f"{path.name}.html" for path in sources.files(folder)}
        assert names
        assert names <= set(targets(page)), folder


def test_every_page_has_the_same_frame(site: Path) -> None:
    """There is one navigation and one stylesheet. The page of the faults has its own copy of it."""
    links = {
        page: [Path(target).name for target in targets(page)[:10]]
        for page in html(site)
        if page.name != "faults.html"
    }
    heads = {tuple(sorted(set(names) - {"data:,", "#main"})) for names in links.values()}
    expected = {"site.css", "index.html", "levels.html", "schedules.html", "faults.html"}
    expected |= {"contents.html", "overview.html"}
    assert heads == {tuple(sorted(expected))}


def test_lessons_come_in_their_order(site: Path) -> None:
    names = [path.stem for path in documents.documents()["Workshop"]]
    lessons = [name for name in names if re.match(r"\d\d-", name)]
    assert names[: len(lessons) + 1] == ["README", *lessons]
    first = (site / "workshop" / "lessons" / "01-two-buyers.html").read_text()
    assert re.search(r'rel="prev" href="\.\./overview\.html"', first)
    assert re.search(r'rel="next" href="02-count-orders\.html"', first)


def test_readme_links_to_the_site_in_its_first_screen(site: Path) -> None:
    first_screen = "".join((ROOT / "README.md").read_text().splitlines(keepends=True)[:25])
    assert f"]({documents.PUBLISHED})" in first_screen
    assert "make site" in first_screen
    assert "python -m http.server -d var/site" in first_screen
    assert 'href="index.html">published site' in (site / "overview.html").read_text()


@pytest.mark.parametrize("package_name", api_reference.TITLES)
def test_api_reference_describes_every_public_name(site: Path, package_name: str) -> None:
    text = (site / "api" / f"{package_name}.html").read_text()
    addresses = re.findall(r'<h2 id="([\w.]+)"', text)
    described_names = {address.rpartition(".")[2] for address in addresses}
    assert described_names >= set(import_module(package_name).__all__)
    # The descriptions of arguments and of exceptions are rendered, too.
    assert "Seconds" in text
    assert "Raises:" in text
