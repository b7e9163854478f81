"""The matrix of faults: a table for the terminal, and Markdown with the broken cells' timelines."""

import re
from collections.abc import Callable, Sequence

from rich.table import Table

from loadtest.faults import FAULTS
from loadtest.judge.run import Cell, Summary
from loadtest.report import tables as report

#: A sign, for those who see no colour, and a colour.
SIGNS = {
    "exact": ("✓", "green"),
    "oversold": ("O", "bold red"),
    "undersold": ("U", "bold red"),
    "deadlock": ("D", "bold red"),
    "unknown": ("?", "bold yellow"),
    "not_run": ("-", "yellow"),
}
LEGEND = "✓ exact  O oversold  U undersold  D deadlock  ? not shown  ! not as expected"


def line(name: str, cells: Sequence[Cell], seconds: float) -> str:
    """One line about the cells of one fault."""
    off = [cell["lock"] for cell in cells if not cell["as_expected"]]
    result = f"off: {', '.join(off)}" if off else "all as expected"
    return f"{name:18} {len(cells):2} strategies, {seconds:4.1f} s, {result}"


def tables(cells: Sequence[Cell], width: int) -> list[Table]:
    """Strategies by faults, in as many tables below each other as `width` columns need; `numbers`
    says which fault each number is."""
    faults, rows = made(cells), _grid(cells, _sign)
    most = max(1, (width - max(map(len, rows), default=0) - 1) // 3)  # of them in a table
    found = []
    for first in range(0, len(faults), most):
        shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        shown.add_column("lock", no_wrap=True)
        for number, _ in enumerate(faults[first : first + most], first + 1):
            shown.add_column(str(number), justify="right", no_wrap=True, min_width=2)
        for lock, signs in rows.items():
            shown.add_row(lock, *signs[first : first + most])
        found.append(shown)
    return found


def numbers(cells: Sequence[Cell]) -> str:
    """The fault of each column of the table, and the meaning of its signs."""
    named = [f"{number} {name}" for number, name in enumerate(made(cells), 1)]
    return "  ".join(named) + "\n" + LEGEND


def figures(cells: Sequence[Cell]) -> list[str]:
    """What each cell came to, in one line each."""
    return [
        f"{cell['lock']} under {cell['fault']}: {_sold(cell)}{_again(cell)}"
        for cell in cells
        if not cell["missing"]
    ]


def _sold(cell: Cell) -> str:
    orders, units = count(cell["orders"], "order"), count(cell["initial_stock"], "unit")
    return f"{orders} for {units}, {cell['stock_left']} left"


def _again(cell: Cell) -> str:
    """When somebody bought again after the fault, where that is measured."""
    if cell["verdict"] == "deadlock":
        return "; nobody buys any more"
    again = cell["recovery_s"]
    return "" if again is None else f"; the next sale came {again:.2f} s after the fault"


def complaint(cell: Cell) -> str:
    """Why a cell is not as expected, in one line."""
    spoiled = cell["violations"] if cell["verdict"] == "unknown" else []
    why = "; ".join(filter(None, (cell["missing"], *cell["wrong"], ", ".join(spoiled))))
    off = f"{cell['lock']} under {cell['fault']}: {cell['verdict']}, expected {cell['expected']}"
    return f"{off} ({why})" if why else off


def markdown(summary: Summary, cells: Sequence[Cell]) -> str:
    """The matrix, the recovery times, and a paragraph for every broken cell."""
    off = sum(not cell["as_expected"] for cell in cells)
    about = (
        f"{count(len(cells), 'cell')}, {off} off their expected verdict. 20 buyers for 10 units in "
        "every cell. Locks survive a silent holder for 1 s, or 5 s where the fault takes the lock "
        f"away. Empty: the fault does not concern the lock. {report.machine_and_date(summary)}."
    )
    shows = {
        name: max((cell["evidence"] for cell in cells if cell["fault"] == name), key=len)
        for name in made(cells)
    }
    broke = [c for c in cells if c["verdict"] not in {"exact", "not_run"} or not c["as_expected"]]
    parts = [
        "# Faults",
        _matrix(cells, _word, about, left=1 + len(shows)),
        "## What was done, and the evidence",
        "\n".join(
            f"- **{name}**: {FAULTS[name].title}. Evidence: {evidence.rstrip('.')}."
            for name, evidence in shows.items()
        ),
    ]
    if timed := [cell for cell in cells if FAULTS[cell["fault"]].recovery]:
        below = "0: the victim kept nobody out."
        parts += ["## Seconds until somebody buys again", _matrix(timed, _seconds, below, left=1)]
    parts += [
        "## What happened in the cells that broke",
        "Seconds since the first line. A is the victim's node, B that of its rivals. Where the\n"
        "same steps broke several locks, one is shown; `summary.json` of a run has all of them.",
        *map(_paragraph, _alike(broke)),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _alike(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The broken cells, grouped by what happened, in the order in which they were made."""
    found: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        steps = [re.sub(r"[0-9.]+|, fence|: two holders", "", line) for line in cell["story"][:-1]]
        happened = frozenset(step for step in steps if "releases" not in step or "deletes" in step)
        same = (cell["fault"], cell["verdict"], complaint(cell) * (not cell["as_expected"]))
        found.setdefault((*same, happened), []).append(cell)
    return list(found.values())


def _seconds(cell: Cell) -> str:
    return "never" if cell["recovery_s"] is None else f"{cell['recovery_s']:.2f}"


def _paragraph(alike: Sequence[Cell]) -> str:
    cell, *others = alike
    numbers = f"{_sold(cell)}, {count(cell['lost_updates'] or 0, 'lost update')}"
    same = ", ".join(f"`{one['lock']}`" for one in others)
    found = f"; found: {', '.join(cell['violations'])}" if cell["violations"] else ""
    surprise = "" if cell["as_expected"] else f" **{complaint(cell)}.**"
    heading = f"### `{cell['lock']}` under {cell['fault']}: {cell['verdict']}"
    text = f"{numbers}{found}.{surprise}{f' The same with {same}.' if same else ''}"
    story = "\n".join(cell["story"])
    return f"{heading}\n\n{text}\n\n```text\n{story}\n```"


def count(number: int, what: str) -> str:
    """So many of these, in words."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def made(cells: Sequence[Cell]) -> list[str]:
    """The faults of these cells, in the order in which they are made."""
    return [name for name in FAULTS if any(cell["fault"] == name for cell in cells)]


def _grid(cells: Sequence[Cell], say: Callable[[Cell], str]) -> dict[str, list[str]]:
    """For each lock what is said of its cell under each fault; empty where it has none."""
    at = {(cell["lock"], cell["fault"]): say(cell) for cell in cells}
    return {lock: [at.get((lock, name), "") for name in made(cells)] for lock, _ in at}


def _matrix(cells: Sequence[Cell], say: Callable[[Cell], str], below: str, *, left: int) -> str:
    """The same as Markdown, with a paragraph below it."""
    rows = [[f"`{lock}`", *texts] for lock, texts in _grid(cells, say).items()]
    return report.markdown_table(["lock", *made(cells)], rows, below, left=left)


def _sign(cell: Cell) -> str:
    sign, colour = SIGNS[cell["verdict"]]
    return f"[{colour}]{sign}[/]" if cell["as_expected"] else f"[bold yellow]{sign}![/]"


def _word(cell: Cell) -> str:
    shown = cell["verdict"] if cell["verdict"] == "exact" else report.bold(cell["verdict"])
    return shown if cell["as_expected"] else f"{shown} (expected {cell['expected']})"
