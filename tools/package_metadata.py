"""A build hook that makes the page and the links of oversold-locks on the Python Package Index.

The page is made from locks/README.md. There, the package is called `locks` and links are relative.
On the page, the package is called `oversold_locks`, and links are absolute.

GitHub sets the repository's address in the environment of a workflow (GITHUB_SERVER_URL,
GITHUB_REPOSITORY, GITHUB_REF_NAME). In another build the address is unknown. Then the page has no
links into the repository, and the package has no project URLs.
"""

import os
import re
from functools import partial
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

README = "locks/README.md"
#: A Markdown link whose target is relative.
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)([^)]*)\)")


class LocksMetadata(MetadataHookInterface):
    """Hatchling's hook: sets the readme and the URLs in the metadata of the package."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme and the URLs in `metadata`.

        In a build from an sdist, the readme and the URLs in the sdist's PKG-INFO are kept.
        """
        if (Path(self.root) / "PKG-INFO").exists():
            return
        repository, ref = find_repository()
        text = (Path(self.root) / README).read_text(encoding="utf-8")
        files_url = ""
        if repository:
            files_url = f"{repository}/blob/{ref}"
            metadata["urls"] = {
                "Homepage": repository,
                "Documentation": f"{files_url}/{README}",
                "Changelog": f"{files_url}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        page = make_page(text, files_url)
        metadata["readme"] = {"content-type": "text/markdown", "text": page}


def find_repository() -> tuple[str, str]:
    """Return the repository's URL, and the tag or branch that is built.

    Both are empty outside a GitHub workflow.
    """
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    if not repository:
        return "", ""
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    return f"{server}/{repository}", os.environ.get("GITHUB_REF_NAME", "HEAD")


def make_page(text: str, files_url: str) -> str:
    """Return the text of locks/README.md as the page of the package on the package index.

    Args:
        text: The text of locks/README.md.
        files_url: The URL of the repository's files. Empty: relative links become plain text.
    """
    # Rename the package in `from locks import ...`, in `from locks.aio ...`, and in backticks.
    text = re.sub(r"(\bfrom |`)locks(?=[ .`])", r"\1oversold_locks", text)
    make_absolute_link = partial(make_link, files_url=files_url)
    # The parts at the indices 1, 3, ... are blocks of code, which stay as they are.
    parts = text.split("```")
    parts[::2] = [LINK.sub(make_absolute_link, part) for part in parts[::2]]
    return "```".join(parts)


def make_link(link: re.Match[str], files_url: str) -> str:
    """Return a Markdown link with an absolute target, or only its text if `files_url` is empty.

    Args:
        link: A match of LINK.
        files_url: The URL of the repository's files.
    """
    label, target = link.groups()
    if not files_url:
        return label
    path, number_sign, anchor = target.partition("#")
    # A target without a path, such as `#times`, is in the README itself.
    file = normpath(join("locks", path)) if path else README
    return f"[{label}]({files_url}/{file}{number_sign}{anchor})"
