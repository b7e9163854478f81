"""The site as a whole: its links, its size, the files that it loads, and the frame of its pages.

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


def list_pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def find_targets(path: Path) -> list[str]:
    """Return the targets of links, scripts, styles and pictures of a page, in their order."""
    return re.findall(r'\b(?:href|src)="?([^\s">]+)', remove_code(path))


def remove_code(path: Path) -> str:
    """Return a page without its scripts and its code, whose text may look like a link."""
    return re.sub(r"<(script|pre)\b(?![^>]*src).*?</\1>", "", path.read_text(), flags=re.DOTALL)


def find_broken_links(path: Path, site: Path) -> list[str]:
    """Return the targets of a page that should be in the site and are not.

    An anchor needs an element with this id, unless it has a `/`: then a script reads it.
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


def test_page_loads_only_local_files(site: Path, page: Page) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for path in list_pages(site):
        page.goto(path.as_uri())
    assert len(requests) > len(list_pages(site))
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_site_is_small_and_two_builds_are_the_same(site: Path, tmp_path: Path) -> None:
    """The second build has another hash seed, so it iterates over its sets in another order."""
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
    """Two clicks at most: a page that the first page links to has a link to the document."""

    def find_linked_pages(path: Path) -> set[Path]:
        names = (target.partition("#")[0] for target in find_targets(path))
        return {(path.parent / name).resolve() for name in names if name.endswith(".html")}

    after_one_click = find_linked_pages(site / "index.html")
    after_two_clicks = {page for path in after_one_click for page in find_linked_pages(path)}
    document_paths = [path for paths in documents.list_documents().values() for path in paths]
    assert len(document_paths) > 30
    expected_pages = {
        (site / documents.find_staged_path(path)).with_suffix(".html") for path in document_paths
    }
    assert expected_pages - after_one_click - after_two_clicks == set()


def test_code_to_copy_is_shown_whole(site: Path) -> None:
    """The pages of files in COPIED_FOLDERS, such as locks/ and examples/, have the whole text."""
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
    monkeypatch.setattr(sources, "MAX_LINES", 3)
    sources.stage(ROOT / "shop" / "settings.py", tmp_path)
    page = (tmp_path / "source" / "shop" / "settings.py.html").read_text()
    lines = (ROOT / "shop" / "settings.py").read_text().splitlines()
    assert read_shown_text(page).splitlines() == lines[:3]
    assert (
        f"The first 3 of {len(lines)} lines; the rest is in <code>shop/settings.py</code>" in page
    )


def test_folder_pages_link_to_their_files(site: Path) -> None:
    folders = sorted((site / "source").rglob("index.html"))
    assert folders
    for page in folders:
        folder = ROOT / page.parent.relative_to(site / "source")
        names = {f"{path.name}.html" for path in sources.list_files(folder)}
        assert names
        assert names <= set(find_targets(page)), folder


def test_every_page_has_the_same_frame(site: Path) -> None:
    """Every page links to the stylesheet, and to the pages of the navigation.

    The page faults.html is not checked, because it contains a copy of the stylesheet.
    """
    # The first ten targets of a page are those of its frame, with the icon (`data:,`) and
    # the content (`#main`).
    links = {
        page: [Path(target).name for target in find_targets(page)[:10]]
        for page in list_pages(site)
        if page.name != "faults.html"
    }
    frames = {frozenset(names) - {"data:,", "#main"} for names in links.values()}
    navigation = {"index.html", "levels.html", "schedules.html", "faults.html"}
    navigation |= {"contents.html", "overview.html"}
    assert frames == {frozenset(navigation | {"site.css"})}


def test_lessons_come_in_their_order(site: Path) -> None:
    names = [path.stem for path in documents.list_documents()["Workshop"]]
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
    # These words are in the descriptions of arguments and of exceptions.
    assert "Seconds" in text
    assert "Raises:" in text
