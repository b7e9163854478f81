"""python -m loadtest.readme: put the table of the latest demo into README.md."""

from __future__ import annotations

import sys
from pathlib import Path

from loadtest.demo import RESULTS

README = RESULTS.parent / "README.md"
BEGIN, END = "<!-- demo: begin (make readme writes this) -->", "<!-- demo: end -->"


def with_table(text: str, table: str) -> str:
    """`text` with what stands between the two markers replaced. Raises ValueError without them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md lacks the lines {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{table}{end}{after}"


def main(results: Path = RESULTS, readme: Path = README) -> int:
    try:
        table = (results / "latest" / "table.md").read_text()
    except FileNotFoundError:
        print("there is no result yet: run make demo first")
        return 1
    readme.write_text(with_table(readme.read_text(), table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
