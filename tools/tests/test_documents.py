"""Every link, command, option, setting, file and name in the documents exists."""

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
from tools.site.documents import PUBLISHED

FILES = list_files(ROOT)
DOCUMENTS = [ROOT / name for name in FILES if name.endswith(".md")]
#: These speak of other code: earlier versions, generated cells, a library.
OTHERS = {"CHANGELOG.md", "docs/faults.md", "demo/static/assets/vendor/README.md"}
PAGES = [page for page in DOCUMENTS if str(page.relative_to(ROOT)) not in OTHERS]
#: Folders that commands make.
MADE = ("results/", "var/", "workshop/mine/", "mine/")
#: What stands for a name or a file of the reader's, and what there is.
PLACEHOLDERS = {"--lock NAME": "--lock redis", "--fault NAME": "--fault pause", "FILE": "README.md"}


def code(text: str) -> str:
    """Return the parts of a page that are marked as code, one on each line."""
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(
        [*fenced, *re.findall(r"^ {4}(\S.*)$", rest, re.MULTILINE), *re.findall(r"`([^`]+)`", rest)]
    )


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def manage_commands() -> set[str]:
    commands = set()
    for folder in ("core/management", "contrib/auth/management", "contrib/staticfiles/management"):
        commands |= set(find_commands(str(Path(django.__file__).parent / folder)))
    return commands | set(find_commands(str(ROOT / "shop/management")))


def is_module(name: str) -> bool:
    """Return whether Python can run a module of the repository or of its standard library."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def commands_that_are_not_there(text: str) -> Iterator[str]:
    """Return the commands in a page that make, manage.py or Python would not find."""
    code_shown = code(text)
    for target in re.findall(r"(?:^|\s)make ([a-z][\w-]*)", code_shown):
        if target not in make_targets():
            yield f"make {target}"
    for name in re.findall(r"manage\.py ([a-z]\w*)", code_shown):
        if name not in manage_commands():
            yield f"manage.py {name}"
    for name in re.findall(r"python3? -m ([a-z]\w*(?:\.\w+)+|loadtest|workshop)", code_shown):
        if not is_module(name) and name.partition(".")[0] not in sys.stdlib_module_names:
            yield f"python -m {name}"


def arguments(text: str) -> Iterator[list[str]]:
    """Return the words of every command of loadtest in a page."""
    code_shown = code(text)
    for command, _, quoted, plain in re.findall(
        r"make ([a-z-]+) ARGS=(?:(['\"])(.*?)\2|(\S+))", code_shown
    ):
        if command in COMMANDS:
            yield [command, *shlex.split(quoted or plain)]
    for line in re.findall(r"python -m loadtest ([a-z][^\n#]*)", code_shown):
        yield shlex.split(line)


def paths_that_are_not_there(text: str) -> Iterator[str]:
    """Return the files named in a page, alone or as `file::name`, that the repository lacks.

    A path may omit the folders above.
    """
    for path, name in re.findall(
        r"^([a-z](?:[\w.-]*/)+[\w.-]*)(?:::(\w+))?$", code(text), re.MULTILINE
    ):
        if path.startswith(MADE):
            continue
        matches = [file for file in FILES if f"/{path}" in f"/{file}"]
        if not matches:
            yield path
        elif name and name not in defined(ROOT / matches[0]):
            yield f"{path}::{name}"


def defined(path: Path) -> set[str]:
    """Return the names of the functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def settings_that_are_not_there(text: str) -> set[str]:
    """Return the environment variables in a page that appear in no code or configuration."""
    return set(re.findall(r"\b(?:SHOP|WEB|LOCUST|REDIS|REDLOCK)_[A-Z_]+\b", text)) - variables()


@cache
def variables() -> set[str]:
    """Return what looks like an environment variable in all files except pages and tests."""
    names = [
        name
        for name in FILES
        if not name.endswith((".md", ".webp", ".lock", ".gz")) and "tests/" not in name
    ]
    words_by_file = (re.findall(r"\b[A-Z]+_[A-Z_]+\b", (ROOT / name).read_text()) for name in names)
    return {word for words in words_by_file for word in words}


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_file_and_setting_of_a_page_exists(page: Path) -> None:
    text = page.read_text()
    assert list(commands_that_are_not_there(text)) == []
    assert list(paths_that_are_not_there(text)) == []
    assert settings_that_are_not_there(text) == set()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_option_in_a_page_exists(page: Path) -> None:
    text = page.read_text()
    for placeholder, name in PLACEHOLDERS.items():
        text = text.replace(placeholder, name)
    for words in arguments(text):
        try:
            parse(words, "")
        except SystemExit:
            pytest.fail(f"{' '.join(words)}: not what the command takes")


def prose(text: str) -> str:
    """Return a page without its blocks of code, whose brackets are no links."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    """Return the targets of links and pictures within the repository."""
    link_targets = re.findall(r"\]\(([^)\s]+)[^)]*\)", prose(text))
    return [
        target
        for target in link_targets
        if not re.match(rf"[a-z]+:|{re.escape(PUBLISHED)}$", target)
    ]


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors that a page's headings have on GitHub."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings(text))
    return {word.strip().replace(" ", "-") for word in words}


def broken(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere."""
    broken_links = []
    for target in links(text):
        path, _, anchor = target.partition("#")
        target_page = (page.parent / path).resolve() if path else page
        lost = not target_page.exists() or not target_page.is_relative_to(ROOT)
        if lost or (
            anchor
            and target_page.suffix == ".md"
            and anchor not in anchors(target_page.read_text())
        ):
            broken_links.append(target)
    return broken_links


@pytest.mark.parametrize("page", DOCUMENTS, ids=page_id)
def test_every_link_has_a_target_in_the_repository(page: Path) -> None:
    assert broken(page, page.read_text()) == []
