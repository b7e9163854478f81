"""Stages the repository's documents for MkDocs.

To stage means to copy into the folder from which MkDocs makes the site. In the copies, links to
files of the repository become links to pages of the site.
"""

import json
import os
import re
import shutil
from html import escape
from itertools import chain
from pathlib import Path

from servers.embedded import ROOT
from tools.site import api_reference, pages, sources
from workshop.lessons import Lesson, lessons

#: The options of MkDocs that are the same for every build.
MKDOCS_OPTIONS = Path(__file__).parent / "mkdocs.yml"
#: The sections of the navigation, each with the paths of its documents, or with patterns of paths.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("README.md", "docs/your-shop.md", "docs/running.md"),
    "Understand": (
        "docs/strategies.md",
        "docs/databases.md",
        "docs/verdicts.md",
        "docs/scale.md",
        "docs/sources.md",
        "docs/architecture.md",
        "docs/history.md",
        "docs/decisions.md",
    ),
    "Copy": ("locks/README.md", "locks/*.md", "testing/README.md", "docs/production.md"),
    "Workshop": ("workshop/README.md", "workshop/lessons/*.md", "workshop/*.md"),
    "Project": ("CONTRIBUTING.md", "CHANGELOG.md", "docs/licences.md"),
}
#: The target of the link in README.md that leads to the published site. In the copy, the link leads
#: to index.html.
PUBLISHED_SITE = "../../deployments/github-pages"
#: A Markdown link or picture. Its groups are the label with its brackets, the label's text, and the
#: target.
LINK = re.compile(r"(!?\[((?:[^\[\]]|\[[^\]]*\])*)\])\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
#: A section of a lesson. Its groups are the heading and the text.
LESSON_SECTION = re.compile(r"^## (\w[^\n]*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def list_documents() -> dict[str, list[Path]]:
    """Return the documents of each section, in the order of the navigation.

    The documents that match the same pattern are sorted by name.
    """
    sections = {}
    for section, patterns in SECTIONS.items():
        paths: list[Path] = []
        for pattern in patterns:
            paths += sorted(ROOT.glob(pattern))
        # A document that matches two patterns is listed once.
        sections[section] = list(dict.fromkeys(paths))
    return sections


def find_staged_path(path: Path) -> Path:
    """Return the path of a document's copy, relative to the staging folder.

    The copy of a README.md is called overview.md, because MkDocs would make an index.html of it.
    """
    relative_path = path.relative_to(ROOT)
    if relative_path.name == "README.md":
        return relative_path.with_name("overview.md")
    return relative_path


def read_title(path: Path) -> str:
    """Return the first heading of a document, or the name of its file if it has no heading."""
    heading = re.search(r"^# (.+)$", path.read_text(), re.MULTILINE)
    if heading is None:
        return path.stem
    return heading[1].replace("`", "")


def stage(folder: Path) -> None:
    """Write the documents into a folder, and the pictures and source files that they link to."""
    document_paths = set(chain.from_iterable(list_documents().values()))
    linked_sources: set[Path] = set()  # _rewrite_document() adds to this set
    for path in document_paths:
        copy = folder / find_staged_path(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_rewrite_document(path, document_paths, linked_sources))
    for path in sorted(linked_sources):
        if path.suffix == sources.PICTURE_SUFFIX:
            copy = folder / sources.find_address(path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        else:
            sources.stage(path, folder)


def make_contents() -> str:
    """Return the Markdown of the page that lists all documents and the other pages of the site."""
    lines = ["# Documents", "## See it", ""]
    lines += [f"- [{name}]({page})" for name, page in pages.INTERACTIVE_PAGES.items()]
    for section, paths in list_documents().items():
        lines += ["", f"## {section}", ""]
        lines += [f"- [{read_title(path)}]({find_staged_path(path)})" for path in paths]
    lines += ["", "## API", ""]
    lines += [
        f"- [{heading}]({address})"
        for address, heading in api_reference.list_titles_by_address().items()
    ]
    return "\n".join(lines)


def make_config(docs_folder: Path, site_folder: Path, theme: Path) -> str:
    """Return the configuration of MkDocs as JSON. MkDocs can read it, because JSON is YAML."""
    nav: list[object] = [{"Documents": "contents.md"}]
    for section, paths in list_documents().items():
        nav.append(
            {section: [{read_title(path): find_staged_path(path).as_posix()} for path in paths]}
        )
    api_pages = api_reference.list_titles_by_address().items()
    nav.append({"API": [{heading: address} for address, heading in api_pages]})
    options = {
        "INHERIT": str(MKDOCS_OPTIONS),
        "docs_dir": str(docs_folder),
        "site_dir": str(site_folder),
        "theme": {"name": None, "custom_dir": str(theme), "search_index_only": True},
        "nav": nav,
        "plugins": {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT)]}}}},
    }
    return json.dumps(options)


def _rewrite_document(page: Path, document_paths: set[Path], linked_sources: set[Path]) -> str:
    """Return the text of a document with links to pages of the site.

    In a lesson, the options of its question are added, and the answer is hidden.

    document_paths  the paths of all documents
    linked_sources  a set to which this function adds each file and folder that the document links
                    to and that is not a document
    """

    def rewrite_link(link: re.Match[str]) -> str:
        """Return a Markdown link with its new target, or only its text if there is no target."""
        label, label_text, target = link.groups()
        path, number_sign, anchor = target.partition("#")
        is_to_other_site = re.match(r"[a-z]+:", target)
        is_within_page = not path
        if is_to_other_site or is_within_page:
            return link[0]
        if target == PUBLISHED_SITE:
            return f"{label}({os.path.relpath(ROOT / 'index.html', page.parent)})"
        file = (page.parent / path).resolve()
        if file.is_dir() and (file / "README.md").exists():
            file /= "README.md"
        if file == ROOT / "docs/faults.md":  # faults.html has the same cells and their timelines
            new_target = "faults.html"
        elif file in document_paths:
            new_target = f"{find_staged_path(file)}{number_sign}{anchor}"
        elif file.is_dir() and not sources.is_copied(file):
            return label_text  # such a folder has no page, so there is no link
        else:
            linked_sources.add(file)
            new_target = sources.find_address(file)
        return f"{label}({os.path.relpath(ROOT / new_target, page.parent)})"

    text = page.read_text()
    lesson = _find_lesson(page)
    if lesson:
        text = _hide_answer(text, lesson)
    parts = CODE_BLOCK.split(text)
    for index, part in enumerate(parts):
        is_code = part.startswith("```")
        if not is_code:
            parts[index] = LINK.sub(rewrite_link, part)
    return "".join(parts)


def _find_lesson(page: Path) -> Lesson | None:
    """Return the lesson whose text is this page; None if it is not a lesson."""
    if page.parent != ROOT / "workshop" / "lessons":
        return None
    return next(lesson for lesson in lessons().values() if lesson.slug == page.stem)


def _hide_answer(text: str, lesson: Lesson) -> str:
    """Return the text of a lesson whose answer is hidden until the reader opens it.

    The text begins with the lesson's objective and the options of its question. Everything that
    tells the answer is inside a <details> element, which begins before the section Observe and ends
    after the section Explain: the observations, the explanation, the misconceptions behind the
    other options, and the key points.
    """

    def rewrite_section(section: re.Match[str]) -> str:
        """Return a section of the lesson with its additions and its part of the <details> tags."""
        heading, body = section.groups()
        if heading == "Question":
            options = "".join(f"<li>{escape(option)}</li>" for option in lesson.options)
            objective = f"*{lesson.objective}*"
            return f'{objective}\n\n{section[0]}<ol class="options" type="a">{options}</ol>\n\n'
        if heading == "Observe":
            answer = f"**{lesson.answer}: {lesson.get_option_text(lesson.answer)}**"
            summary = "<summary>The answer: decide first, then open it</summary>"
            return (
                f'<details class="answer" markdown="1">{summary}\n\n## Observe\n\n{answer}\n{body}'
            )
        if heading == "Explain":
            misconceptions = "\n".join(
                f"- {option}: {belief}" for option, belief in lesson.misconceptions.items()
            )
            key_points = "\n".join(f"- {key_point}" for key_point in lesson.key_points)
            return (
                f"## Explain\n{body}\n**What the other options believe**\n\n{misconceptions}\n\n"
                f"**Remember**\n\n{key_points}\n\n</details>\n\n"
            )
        return section[0]

    return LESSON_SECTION.sub(rewrite_section, text)
