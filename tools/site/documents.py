"""The documents of the repository as MkDocs wants them: staged, their links mended, in sections."""

import json
import os
import re
import shutil
from html import escape
from pathlib import Path

from servers.embedded import ROOT
from tools.site import pages

#: What is the same for every build.
MKDOCS = Path(__file__).parent / "mkdocs.yml"
#: The sections, in the order of the navigation. A pattern stands for its files in their order.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("README.md", "docs/your-shop.md", "docs/running.md"),
    "Understand": (
        *("docs/strategies.md", "docs/verdicts.md", "docs/scale.md", "docs/sources.md"),
        *("docs/architecture.md", "docs/history.md", "docs/decisions.md"),
    ),
    "Copy": ("locks/README.md", "locks/*.md", "testing/README.md", "docs/production.md"),
    "Workshop": ("workshop/*.md", "workshop/lessons/*.md"),
    "Project": ("CONTRIBUTING.md", "CHANGELOG.md", "docs/licences.md"),
}
PICTURE = ".webp"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
#: Characters of a linked file that are shown.
LONG = 4_000
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def documents() -> dict[str, list[Path]]:
    """Section -> its documents, of those that there are."""
    found = {}
    for section, patterns in SECTIONS.items():
        paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
        found[section] = list(dict.fromkeys(paths))
    return found


def staged(path: Path) -> Path:
    """Its place on the site. MkDocs would make index.html of a README.md."""
    place = path.relative_to(ROOT)
    return place.with_name("overview.md") if place.name == "README.md" else place


def title(path: Path) -> str:
    heading = re.search(r"^# (.+)$", path.read_text(), re.MULTILINE)
    return heading[1].replace("`", "") if heading else path.stem


def stage(folder: Path) -> None:
    """Copy the documents into a folder, with the pictures and the code that they link to."""
    known = {path for paths in documents().values() for path in paths}
    wanted: set[Path] = set()
    for path in known:
        place = folder / staged(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_mended(path, known, wanted))
    for path in sorted(wanted):
        _stage_linked(path, folder)


def contents() -> str:
    """A list of every page, in Markdown."""
    own = [f"- [{name}]({page})" for name, page in pages.OWN.items()]
    lines = ["# Contents", "## See it", *own]
    for section, paths in documents().items():
        lines += [f"## {section}", *(f"- [{title(path)}]({staged(path)})" for path in paths)]
    return "\n\n".join(lines)


def config(folder: Path, site: Path) -> str:
    """The configuration of MkDocs, as JSON, which is YAML: mkdocs.yml, folders and navigation."""
    own = pages.OWN | {"Contents": "contents.md"}
    nav: list[object] = [{"See it": [{name: page} for name, page in own.items()]}]
    for section, paths in documents().items():
        nav.append({section: [{title(path): staged(path).as_posix()} for path in paths]})
    said = {"INHERIT": str(MKDOCS), "docs_dir": str(folder), "site_dir": str(site), "nav": nav}
    return json.dumps(said)


def _mended(page: Path, known: set[Path], wanted: set[Path]) -> str:
    """The text of a page with links to code as links to the site's copy; what it links to is added
    to `wanted`."""

    def mend(link: re.Match[str]) -> str:
        label, target = link.groups()
        path, sign, anchor = target.partition("#")
        there = (page.parent / path).resolve()
        if re.match(r"[a-z]+:", target) or not path:
            return link[0]
        if there.is_dir() and there / "README.md" in known:
            there /= "README.md"
        if there == ROOT / "docs/faults.md":  # the same cells, with their timelines drawn
            place = "faults.html"
        elif there in known:
            place = f"{staged(there)}{sign}{anchor}"
        else:
            wanted.add(there)
            place = _copy_of(there)
        return f"{label}({os.path.relpath(ROOT / place, page.parent)})"

    parts = FENCE.split(page.read_text())
    return "".join(part if part.startswith("```") else LINK.sub(mend, part) for part in parts)


def _stage_linked(path: Path, folder: Path) -> None:
    copy = _copy_of(path)
    place = folder / copy
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == PICTURE:
        shutil.copy(path, place)
        return
    name = path.relative_to(ROOT)
    body = _listing(path) if path.is_dir() else _code(path.read_text())
    main = f'<section class="card"><h1>{name}</h1>{body}</section>'
    place.write_text(pages.frame(str(name), main, up="../" * copy.count("/")))


def _copy_of(path: Path) -> str:
    """Where the site has a file or a folder. MkDocs leaves out what begins with a dot."""
    name = path.relative_to(ROOT).as_posix().lstrip(".")
    if path.suffix == PICTURE:
        return name
    return f"source/{name}/index.html" if path.is_dir() else f"source/{name}.html"


def _code(text: str) -> str:
    text = text if len(text) < LONG else f"{text[:LONG]}\n..."
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Its text">'
        f"<pre>{escape(text)}</pre></div>"
    )


def _listing(folder: Path) -> str:
    """The names of a folder's files."""
    names = sorted(path.name for path in folder.iterdir())
    shown = (escape(name) for name in names if not name.startswith((".", "__")))
    return f"<ul>{''.join(f'<li><code>{name}</code></li>' for name in shown)}</ul>"
