"""python -m tools.licences: write the table of packages into docs/licences.md.

Runs with the Python of .venv, where the packages are: what a package says of itself is in its
installed metadata. Packages that only Windows needs are left out.
"""

from __future__ import annotations

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
PAGE = ROOT / "docs/licences.md"
BEGIN = "<!-- packages: begin (make licences writes this) -->\n"
END = "<!-- packages: end -->"

#: What the metadata call by another name than SPDX does.
SPDX = {
    "MIT License": "MIT",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD (which one: see its file)",
}
#: Needed by Python before 3.11.3 alone, so it may not be installed.
NOT_INSTALLED = {"async-timeout": "Apache-2.0"}


def licence(package: Distribution) -> str:
    """The licence that a package states: its expression, its classifier, or its short name.

    Raises LookupError where it states none.
    """

    def stated(field: str) -> list[str]:
        return [str(each) for each in package.metadata.get_all(field) or []]

    if expression := stated("License-Expression"):
        return expression[0]
    classes = [
        each.rsplit(" :: ")[-1] for each in stated("Classifier") if each.startswith("License :: ")
    ]
    name = "".join(stated("License")[:1])
    if "\n" in name or len(name) > 40:
        name = ""
    if found := name or " ".join(classes):
        return SPDX.get(found, found)
    raise LookupError(f"{package.name} states no licence: look into its files")


def packages(lock: str) -> list[str]:
    """The names that a lock has for Linux or macOS, sorted."""
    lines = [line.split("\\")[0] for line in lock.splitlines() if line[:1].isalnum()]
    entries = [Requirement(line) for line in lines]
    return sorted(
        {canonicalize_name(e.name) for e in entries if "win32" not in str(e.marker or "")}
    )


def table() -> str:
    """A row for each locked package: what it is called, and its licence."""
    rows = []
    for name in packages(LOCK.read_text()):
        try:
            rows.append(f"| {name} | {licence(distribution(name))} |\n")
        except PackageNotFoundError:
            rows.append(f"| {name} | {NOT_INSTALLED[name]} |\n")
    return "| package | licence |\n|---|---|\n" + "".join(rows)


def replaced(page: str, new: str) -> str:
    """The page with another table between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + new + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(), table()))
