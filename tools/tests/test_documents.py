"""The links, commands, options, settings, files and names in the documents exist."""

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import django
import pytest
from django.core.management import find_commands

from loadtest.commands.main import COMMANDS, parse
from loadtest.tests.checkout import list_files
from servers.embedded import ROOT
from tools.site.documents import PUBLISHED_SITE

FILE_NAMES = list_files(ROOT)
DOCUMENTS = [ROOT / name for name in FILE_NAMES if name.endswith(".md")]
#: Pages that may mention code that does not exist here: a page about earlier versions, a generated
#: table, and the page of a library.
ABOUT_OTHER_CODE = {"CHANGELOG.md", "docs/faults.md", "demo/static/assets/vendor/README.md"}
CHECKED_PAGES = [page for page in DOCUMENTS if str(page.relative_to(ROOT)) not in ABOUT_OTHER_CODE]
#: Folders that a fresh clone does not have, because commands make them.
MADE_BY_COMMANDS = ("results/", "var/", "workshop/mine/", "mine/")
#: Placeholder in a document, in the place of a name that the reader chooses -> an existing name
#: that replaces it before the commands of the document are parsed.
PLACEHOLDERS = {"--lock NAME": "--lock redis", "--fault NAME": "--fault pause", "FILE": "README.md"}


def find_marked_code(text: str) -> str:
    """Return the code in a page: its code blocks and the text in backticks, each on a line."""
    code_blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented_lines = re.findall(r"^ {4}(\S.*)$", rest, re.MULTILINE)
    texts_in_backticks = re.findall(r"`([^`]+)`", rest)
    return "\n".join(code_blocks + indented_lines + texts_in_backticks)


def read_make_targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read_manage_commands() -> set[str]:
    """Return the commands of manage.py: those of Django and those of the shop."""
    commands = set()
    for folder in ("core/management", "contrib/auth/management", "contrib/staticfiles/management"):
        commands |= set(find_commands(str(Path(django.__file__).parent / folder)))
    return commands | set(find_commands(str(ROOT / "shop/management")))


def is_module(name: str) -> bool:
    """Return whether `python -m NAME` finds a module of the repository or the standard library."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def find_unknown_commands(text: str) -> Iterator[str]:
    """Yield the commands in a page that do not exist: of make, manage.py and `python -m`."""
    marked_code = find_marked_code(text)
    for target in re.findall(r"(?:^|\s)make ([a-z][\w-]*)", marked_code):
        if target not in read_make_targets():
            yield f"make {target}"
    for name in re.findall(r"manage\.py ([a-z]\w*)", marked_code):
        if name not in read_manage_commands():
            yield f"manage.py {name}"
    for name in re.findall(r"python3? -m ([a-z]\w*(?:\.\w+)+|loadtest|workshop)", marked_code):
        if not is_module(name):
            yield f"python -m {name}"


def find_loadtest_commands(text: str) -> Iterator[list[str]]:
    """Yield each command of the load test in a page, as a list of its name and its arguments.

    A page may write it as `make COMMAND ARGS="..."`, or as `python -m loadtest COMMAND ...`.
    """
    marked_code = find_marked_code(text)
    for command, _, quoted, unquoted in re.findall(
        r"make ([a-z-]+) ARGS=(?:(['\"])(.*?)\2|(\S+))", marked_code
    ):
        if command in COMMANDS:
            yield [command, *shlex.split(quoted or unquoted)]
    for line in re.findall(r"python -m loadtest ([a-z][^\n#]*)", marked_code):
        yield shlex.split(line)


def find_missing_paths(text: str) -> Iterator[str]:
    """Yield the paths in a page that the repository does not have.

    Also yield each `path::name` whose file does not define the name. A page may omit the first
    folders of a path, and a path may be a folder. So a path exists if it is a part of the path of
    any file.
    """
    for path, name in re.findall(
        r"^([a-z](?:[\w.-]*/)+[\w.-]*)(?:::(\w+))?$", find_marked_code(text), re.MULTILINE
    ):
        if path.startswith(MADE_BY_COMMANDS):
            continue
        matches = [file for file in FILE_NAMES if f"/{path}" in f"/{file}"]
        if not matches:
            yield path
        elif name and name not in read_defined_names(ROOT / matches[0]):
            yield f"{path}::{name}"


def read_defined_names(path: Path) -> set[str]:
    """Return the names of the functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def find_unknown_settings(text: str) -> set[str]:
    """Return the settings (environment variables) in a page that the code does not contain."""
    variables = set(re.findall(r"\b(?:SHOP|WEB|LOCUST|REDIS|REDLOCK)_[A-Z_]+\b", text))
    return variables - read_possible_variable_names()


@cache
def read_possible_variable_names() -> set[str]:
    """Return the possible names of environment variables in the code and the configuration.

    A possible name is any word of capital letters that has a `_`, so the result also contains the
    names of constants. Documents and tests are not read.
    """
    names = [
        name
        for name in FILE_NAMES
        if not name.endswith((".md", ".webp", ".lock", ".gz")) and "tests/" not in name
    ]
    words_by_file = (re.findall(r"\b[A-Z]+_[A-Z_]+\b", (ROOT / name).read_text()) for name in names)
    return {word for words in words_by_file for word in words}


def make_page_id(page: Path) -> str:
    """Return the path of a page in the repository, as the id of a test."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", CHECKED_PAGES, ids=make_page_id)
def test_every_command_file_and_setting_of_a_page_exists(page: Path) -> None:
    """The code in a page mentions only what exists in the repository."""
    text = page.read_text()
    assert list(find_unknown_commands(text)) == []
    assert list(find_missing_paths(text)) == []
    assert find_unknown_settings(text) == set()


@pytest.mark.parametrize("page", CHECKED_PAGES, ids=make_page_id)
def test_every_option_in_a_page_exists(page: Path) -> None:
    """Each command of the load test in a page is parsed, and not run."""
    text = page.read_text()
    for placeholder, existing_name in PLACEHOLDERS.items():
        text = text.replace(placeholder, existing_name)
    for command_line in find_loadtest_commands(text):
        try:
            parse(command_line, description="")
        except SystemExit:
            pytest.fail(f"invalid in {make_page_id(page)}: `{' '.join(command_line)}`")


def remove_code_blocks(text: str) -> str:
    """Return the text of a page without its code blocks, in which brackets are not links."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def find_link_targets(text: str) -> list[str]:
    """Return the targets of a page's links and pictures, except those on other sites."""
    link_targets = re.findall(r"\]\(([^)\s]+)[^)]*\)", remove_code_blocks(text))
    return [
        target
        for target in link_targets
        if not re.match(rf"[a-z]+:|{re.escape(PUBLISHED_SITE)}$", target)
    ]


def find_headings(text: str) -> list[str]:
    """Return the headings of a page, at all levels."""
    return re.findall(r"^#+ (.+)$", remove_code_blocks(text), re.MULTILINE)


def make_anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes from the headings of a page."""
    cleaned = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in find_headings(text))
    return {heading.strip().replace(" ", "-") for heading in cleaned}


def find_broken_links(page: Path, text: str) -> list[str]:
    """Return the targets in a page that do not exist: files, and anchors in Markdown files."""
    broken_links = []
    for target in find_link_targets(text):
        path, _, anchor = target.partition("#")
        target_page = (page.parent / path).resolve() if path else page
        is_broken = not target_page.exists() or not target_page.is_relative_to(ROOT)
        if not is_broken and anchor and target_page.suffix == ".md":
            is_broken = anchor not in make_anchors(target_page.read_text())
        if is_broken:
            broken_links.append(target)
    return broken_links


@pytest.mark.parametrize("page", DOCUMENTS, ids=make_page_id)
def test_every_link_has_a_target_in_the_repository(page: Path) -> None:
    assert find_broken_links(page, page.read_text()) == []
