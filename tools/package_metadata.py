"""The page and the links of the package oversold-locks, made when it is built.

The page is locks/README.md, in which the package is called `locks` and links are relative, because
it is read in the repository. On the index the package is `oversold_locks`, and a relative link
leads nowhere. The repository's address is that of the GitHub workflow that builds the release
(GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_REF_NAME); a build elsewhere knows none, and its page
has no links into the repository and no project URLs.
"""

import os
import re
from functools import partial
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

README = "locks/README.md"
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)([^)]*)\)")


class LocksMetadata(MetadataHookInterface):
    """Set the readme and the URLs."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what the sdist that this is built from, if any, does not say yet."""
        if (Path(self.root) / "PKG-INFO").exists():
            return
        repository, ref = find_repository()
        text = (Path(self.root) / README).read_text(encoding="utf-8")
        base = ""
        if repository:
            base = f"{repository}/blob/{ref}"
            metadata["urls"] = {
                "Homepage": repository,
                "Documentation": f"{base}/{README}",
                "Changelog": f"{base}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        page = make_page(text, base)
        metadata["readme"] = {"content-type": "text/markdown", "text": page}


def find_repository() -> tuple[str, str]:
    """Return the repository's URL and the tag that is built; two empty strings if unknown."""
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    if not repository:
        return "", ""
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    return f"{server}/{repository}", os.environ.get("GITHUB_REF_NAME", "HEAD")


def make_page(text: str, base: str) -> str:
    """Return the page of the index.

    Args:
        text: The README of the folder.
        base: URL below which the repository's files are. Empty: relative links become plain text.
    """
    text = re.sub(r"(\bfrom |`)locks(?=[ .`])", r"\1oversold_locks", text)
    parts = text.split("```")  # every second part is code
    make_link_to_base = partial(make_link, base=base)
    parts[::2] = [LINK.sub(make_link_to_base, part) for part in parts[::2]]
    return "```".join(parts)


def make_link(link: re.Match[str], base: str) -> str:
    """Return an absolute link, or its text alone."""
    label, target = link.groups()
    if not base:
        return label
    path, sign, anchor = target.partition("#")
    file = normpath(join("locks", path)) if path else README
    return f"[{label}]({base}/{file}{sign}{anchor})"
