"""python -m loadtest.readme: put the tables of the latest demo and matrix into README.md."""

from __future__ import annotations

import sys
from pathlib import Path

from loadtest.results import RESULTS

README = RESULTS.parent / "README.md"
#: The file of a result folder that each table comes from.
TABLES = ("demo", "matrix")


def begin(table: str) -> str:
    return f"<!-- {table}: begin (make readme writes this) -->"


def end(table: str) -> str:
    return f"<!-- {table}: end -->"


def with_table(text: str, name: str, table: str) -> str:
    """`text` with what stands between the two markers replaced. Raises ValueError without them."""
    before, first, rest = text.partition(begin(name))
    _, last, after = rest.partition(end(name))
    if not (first and last):
        raise ValueError(f"README.md lacks the lines {begin(name)!r} and {end(name)!r}")
    return f"{before}{first}\n{table}{last}{after}"


def latest(results: Path, name: str) -> str | None:
    """The newest table of that name; None where none was made yet."""
    found = sorted(results.glob(f"[0-9]*/{name}.md"))
    return found[-1].read_text() if found else None


def main(results: Path = RESULTS, readme: Path = README) -> int:
    text = readme.read_text()
    for name in TABLES:
        table = latest(results, name)
        if table is None:
            print(f"there is no table yet that make {name} wrote; the old one stays")
        else:
            text = with_table(text, name, table)
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
