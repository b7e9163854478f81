"""The site as a whole: its links, its size, the files that it loads, and the layout of its pages.

Also tested are the pages of source files, the order of the lessons and the API reference.
"""

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
from tools.site.__main__ import MAX_BYTES, measure_size

#: The lines of README.md that a browser shows without scrolling.
LINES_OF_FIRST_SCREEN = 25
#: The least number of documents. A smaller number would mean that a pattern finds none.
MIN_DOCUMENTS = 31


def list_pages(site: Path) -> list[Path]:
    """Return the HTML files of the site."""
    return sorted(site.rglob("*.html"))


def find_targets(path: Path) -> list[str]:
    """Return the targets of the links, scripts, styles and pictures of a page, in page order."""
    return re.findall(r'\b(?:href|src)="?([^\s">]+)', remove_code(path))


def remove_code(path: Path) -> str:
    """Return the HTML of a page without scripts and blocks of code, which may contain `href=`."""
    return re.sub(r"<(script|pre)\b(?![^>]*src).*?</\1>", "", path.read_text(), flags=re.DOTALL)


def find_broken_links(path: Path, site: Path) -> list[str]:
    """Return the targets of a page that should be in the site and are not.

    The page of a target must have an element whose id is the anchor. An anchor with a `/` is not
    checked, because it is read by a script.
    """
    broken_links = []
    for target in find_targets(path):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        page = (path.parent / name).resolve() if name else path
        exists = page.is_file() and page.is_relative_to(site)
        if exists and anchor and "/" not in anchor:
            exists = f'id="{anchor}"' in page.read_text()
        if not exists:
            broken_links.append(target)
    return broken_links


def test_every_link_of_the_site_has_a_target(site: Path) -> None:
    broken_links = {page.name: find_broken_links(page, site) for page in list_pages(site)}
    assert {name: targets for name, targets in broken_links.items() if targets} == {}


def test_pages_load_only_local_files(site: Path, page: Page) -> None:
    """No page of the site requests a file from another server."""
    requested_urls: list[str] = []
    page.on("request", lambda request: requested_urls.append(request.url))
    for path in list_pages(site):
        page.goto(path.as_uri())
    assert len(requested_urls) > len(list_pages(site))
    local_schemes = ("file:", "data:", "blob:")
    assert [url for url in requested_urls if not url.startswith(local_schemes)] == []


def test_site_is_small_and_two_builds_are_the_same(site: Path, tmp_path: Path) -> None:
    """The second build has another hash seed, so sets are iterated over in another order."""
    assert measure_size(site) < MAX_BYTES
    second_site = tmp_path / "again"
    code = (
        "import sys; from pathlib import Path; from tools.site.__main__ import build;"
        "build(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(second_site), str(tmp_path / "staged")]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
    files = {
        path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()
    }
    assert files == {
        path.relative_to(second_site): path.read_bytes()
        for path in second_site.rglob("*")
        if path.is_file()
    }


def test_every_document_is_two_clicks_from_the_first_page(site: Path) -> None:
    """The first page links to the document, or to a page that links to the document."""

    def find_linked_pages(path: Path) -> set[Path]:
        names = (target.partition("#")[0] for target in find_targets(path))
        return {(path.parent / name).resolve() for name in names if name.endswith(".html")}

    after_one_click = find_linked_pages(site / "index.html")
    after_two_clicks = {page for path in after_one_click for page in find_linked_pages(path)}
    document_paths = [path for paths in documents.list_documents().values() for path in paths]
    assert len(document_paths) >= MIN_DOCUMENTS
    expected_pages = {
        (site / documents.find_staged_path(path)).with_suffix(".html") for path in document_paths
    }
    assert expected_pages - after_one_click - after_two_clicks == set()


def test_code_to_copy_is_shown_whole(site: Path) -> None:
    """The page of a file that readers may copy, such as a file in locks/, has the whole text."""
    source_pages = {
        str(page.relative_to(site / "source")).removesuffix(".html"): page.read_text()
        for page in (site / "source").rglob("*.html")
        if page.name != "index.html"
    }
    copied = [name for name in source_pages if sources.is_copied(ROOT / name)]
    assert {"locks/one_file.py", "locks/redis_lock.py", "examples/checkout.py"} <= set(copied)
    for name in copied:
        assert read_shown_text(source_pages[name]) == (ROOT / name).read_text(), name


def read_shown_text(source_page: str) -> str:
    """Return the text of the file that a source page shows."""
    (text,) = re.findall(r"<pre>(.*?)</pre>", source_page, re.DOTALL)
    return unescape(text)


def test_cut_file_shows_where_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not in COPIED_FOLDERS is cut after MAX_LINES, here 3, and a note says so."""
    monkeypatch.setattr(sources, "MAX_LINES", 3)
    sources.stage(ROOT / "shop" / "settings.py", tmp_path)
    page = (tmp_path / "source" / "shop" / "settings.py.html").read_text()
    lines = (ROOT / "shop" / "settings.py").read_text().splitlines()
    assert read_shown_text(page).splitlines() == lines[:3]
    assert (
        f"The first 3 of {len(lines)} lines; the rest is in <code>shop/settings.py</code>" in page
    )


def test_page_of_a_folder_links_to_the_pages_of_its_files(site: Path) -> None:
    folder_pages = sorted((site / "source").rglob("index.html"))
    assert folder_pages
    for page in folder_pages:
        folder = ROOT / page.parent.relative_to(site / "source")
        names_of_file_pages = {f"{path.name}.html" for path in sources.list_files(folder)}
        assert names_of_file_pages
        assert names_of_file_pages <= set(find_targets(page)), folder


def test_every_page_has_the_same_layout(site: Path) -> None:
    """Every page links to the stylesheet, and to the pages of the navigation.

    These are the first ten targets of a page, together with the icon (`data:,`) and the content
    (`#main`); the navigation links to the first page twice. The page faults.html is not checked,
    because it contains a copy of the stylesheet.
    """
    layouts = {
        frozenset(Path(target).name for target in find_targets(page)[:10]) - {"data:,", "#main"}
        for page in list_pages(site)
        if page.name != "faults.html"
    }
    navigation = {"index.html", "levels.html", "schedules.html", "faults.html"}
    navigation |= {"contents.html", "overview.html"}
    assert layouts == {frozenset(navigation | {"site.css"})}


def test_lessons_come_in_their_order(site: Path) -> None:
    """In the navigation, the lessons follow the workshop's README, sorted by their numbers.

    Each page has links to the previous and to the next page.
    """
    names = [path.stem for path in documents.list_documents()["Workshop"]]
    lesson_names = [name for name in names if re.match(r"\d\d-", name)]
    assert names[: len(lesson_names) + 1] == ["README", *lesson_names]
    first_lesson = (site / "workshop" / "lessons" / "01-two-buyers.html").read_text()
    assert re.search(r'rel="prev" href="\.\./overview\.html"', first_lesson)
    assert re.search(r'rel="next" href="02-count-orders\.html"', first_lesson)


def test_readme_links_to_the_site_in_its_first_screen(site: Path) -> None:
    """README.md links to the published site, and says how to build it and to serve it."""
    lines = (ROOT / "README.md").read_text().splitlines(keepends=True)
    first_screen = "".join(lines[:LINES_OF_FIRST_SCREEN])
    assert f"]({documents.PUBLISHED_SITE})" in first_screen
    assert "make site" in first_screen
    assert "python -m http.server -d var/site" in first_screen
    assert 'href="index.html">published site' in (site / "overview.html").read_text()


@pytest.mark.parametrize("package_name", api_reference.TITLES)
def test_api_reference_describes_every_public_name(site: Path, package_name: str) -> None:
    """The page of a package describes all names in its `__all__`, with arguments and exceptions."""
    text = (site / "api" / f"{package_name}.html").read_text()
    qualified_names = re.findall(r'<h2 id="([\w.]+)"', text)
    described_names = {qualified_name.rpartition(".")[2] for qualified_name in qualified_names}
    assert described_names >= set(import_module(package_name).__all__)
    assert "Seconds" in text, "the page does not describe the arguments"
    assert "Raises:" in text, "the page does not describe the exceptions"
