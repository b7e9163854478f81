"""The report on a run of faults: tables for the terminal, and a page in Markdown.

Both show a matrix of cells. A cell is one strategy (a row) under one fault (a column). The page
also tells the story of each cell whose verdict is not exact or not as expected: a timeline of its
events.
"""

import re
from collections.abc import Callable, Sequence

from rich.table import Table

from loadtest.faults import FAULTS
from loadtest.faults.trial import BUYERS, STOCK
from loadtest.judge.finding import format_count
from loadtest.judge.run import Cell, Summary
from loadtest.report import tables

#: Verdict -> its sign and its colour. The sign alone is enough, for a terminal without colours.
SIGNS = {
    "exact": ("✓", "green"),
    "oversold": ("O", "bold red"),
    "undersold": ("U", "bold red"),
    "deadlock": ("D", "bold red"),
    "unknown": ("?", "bold yellow"),
    "not_run": ("-", "yellow"),
}
LEGEND = "✓ exact  O oversold  U undersold  D deadlock  ? unknown  - not run  ! not as expected"


def make_fault_line(name: str, cells: Sequence[Cell], seconds: float) -> str:
    """Return one line that summarizes the cells (strategies) of the fault `name`.

    seconds  how long the fault and its sales took
    """
    unexpected_locks = [cell["lock"] for cell in cells if not cell["as_expected"]]
    summary = "all as expected"
    if unexpected_locks:
        summary = f"not as expected: {', '.join(unexpected_locks)}"
    return f"{name:18} {len(cells):2} strategies, {seconds:4.1f} s, {summary}"


def make_tables(cells: Sequence[Cell], width: int) -> list[Table]:
    """Return tables with a row for each strategy and a column for each fault.

    If one table would be wider than `width` characters, there are several. A column's heading is
    the fault's number; make_column_legend() explains the numbers.
    """
    faults = list_fault_names(cells)
    signs_by_lock = _make_grid(cells, _format_sign)
    longest_name = max(map(len, signs_by_lock), default=0)
    # A fault's column takes 3 characters: 2 for the sign or the number, and a space.
    faults_per_table = max(1, (width - longest_name - 1) // 3)
    all_tables = []
    for start in range(0, len(faults), faults_per_table):
        end = min(start + faults_per_table, len(faults))
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
        table.add_column("lock", no_wrap=True)
        for column in range(start, end):
            table.add_column(str(column + 1), justify="right", no_wrap=True, min_width=2)
        for lock, signs in signs_by_lock.items():
            table.add_row(lock, *signs[start:end])
        all_tables.append(table)
    return all_tables


def make_column_legend(cells: Sequence[Cell]) -> str:
    """Return the legend of the tables: the number of each fault, and the meaning of the signs."""
    numbered_faults = [f"{number} {name}" for number, name in enumerate(list_fault_names(cells), 1)]
    return "  ".join(numbered_faults) + "\n" + LEGEND


def make_cell_lines(cells: Sequence[Cell]) -> list[str]:
    """Return a line for each conclusive cell (one strategy under one fault).

    The line has the cell's orders, remaining stock and recovery time.
    """
    return [
        f"{cell['lock']} under {cell['fault']}: {_describe_sale(cell)}{_describe_recovery(cell)}"
        for cell in cells
        if not cell["missing"]  # the reason why a cell is inconclusive, or was not run
    ]


def _describe_sale(cell: Cell) -> str:
    orders = format_count(cell["orders"], "order")
    units = format_count(cell["initial_stock"], "unit")
    return f"{orders} for {units}, {cell['stock_left']} left"


def _describe_recovery(cell: Cell) -> str:
    """Return the time from the fault to the next sale, as text; empty if it was not measured."""
    if cell["verdict"] == "deadlock":
        return "; sales have stopped"
    if cell["recovery_s"] is None:
        return ""
    return f"; the next sale came {cell['recovery_s']:.2f} s after the fault"


def describe_unexpected_cell(cell: Cell) -> str:
    """Return a line on a cell (one strategy under one fault) that is not as expected.

    The reasons are taken from three fields of the cell: `missing`, why it is inconclusive or was
    not run; `why`, the reason for the verdict `unknown`; `wrong`, the problems besides the verdict.
    """
    reasons = []
    if cell["missing"]:
        reasons.append(cell["missing"])
    elif cell.get("why"):
        reasons.append(cell["why"])
    reasons += cell["wrong"]
    line = f"{cell['lock']} under {cell['fault']}: {cell['verdict']}, expected {cell['expected']}"
    if reasons:
        line += f" ({'; '.join(reasons)})"
    return line


def make_markdown(summary: Summary, cells: Sequence[Cell]) -> str:
    """Return the page: the matrix, the evidence, the recovery times, and the broken cells.

    A cell (one strategy under one fault) is broken if its verdict is neither `exact` nor `not_run`,
    or is not as expected.
    """
    unexpected_count = sum(not cell["as_expected"] for cell in cells)
    matrix_note = (
        f"{format_count(len(cells), 'cell')}, {unexpected_count} not as expected. "
        f"{BUYERS} buyers for {STOCK} units in every cell. "
        "A lock that is not renewed expires after 1 s, or "
        "5 s where it must not expire before the fault. "
        "Empty: the fault does not concern the lock. "
        f"{tables.describe_machine_and_date(summary)}."
    )
    # All conclusive cells of a fault have the same evidence. Other cells have a shorter text or
    # none, so the longest text is chosen.
    evidence_by_fault = {
        name: max((cell["evidence"] for cell in cells if cell["fault"] == name), key=len)
        for name in list_fault_names(cells)
    }
    broken_cells = [
        cell
        for cell in cells
        if cell["verdict"] not in {"exact", "not_run"} or not cell["as_expected"]
    ]
    sections = [
        "# Faults",
        _make_matrix(cells, _format_verdict, matrix_note, left=1 + len(evidence_by_fault)),
        "## What was done, and the evidence",
        "\n".join(
            f"- **{name}**: {FAULTS[name].title}. Evidence: {evidence.rstrip('.')}."
            for name, evidence in evidence_by_fault.items()
        ),
    ]
    timed_cells = [cell for cell in cells if FAULTS[cell["fault"]].measures_recovery]
    if timed_cells:
        recovery_note = "0: the victim's lock did not block other buyers."
        sections += [
            "## Seconds until the next sale",
            _make_matrix(timed_cells, _format_recovery, recovery_note, left=1),
        ]
    sections += [
        "## What happened in the cells that broke",
        "Seconds since the first line. A is the victim's node, B that of its rivals. All\n"
        "strategies of the run share the order numbers. Where the same steps broke several locks,\n"
        "one is shown; `summary.json` of a run has all of them.",
    ]
    for similar_cells in _group_similar_cells(broken_cells):
        sections.append(_make_section(similar_cells))
    return "\n\n".join(section.rstrip("\n") for section in sections) + "\n"


def _group_similar_cells(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return groups of cells with the same fault, the same verdict and nearly the same story.

    The story of a cell is its timeline: one line for each step, and a summary as the last line. Two
    stories are nearly the same if they differ only in times, numbers, fences, the order of their
    steps, or releases that delete no lock. If cells are not as expected, they are in the same group
    only if their reasons are the same.
    """
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        # Remove numbers, fences, and the remark that two buyers hold the lock at the same time.
        steps = [
            re.sub(r"[0-9.]+|, fence|: two (holders|inside, .*)", "", line)
            for line in cell["story"][:-1]
        ]
        distinguishing_steps = frozenset(
            step for step in steps if "releases" not in step or "deletes" in step
        )
        problem = ""
        if not cell["as_expected"]:
            problem = describe_unexpected_cell(cell)
        group_key = (cell["fault"], cell["verdict"], problem, distinguishing_steps)
        groups.setdefault(group_key, []).append(cell)
    return list(groups.values())


def _format_recovery(cell: Cell) -> str:
    """Return the seconds until the next sale, or `never` if there was none."""
    if cell["recovery_s"] is None:
        return "never"
    return f"{cell['recovery_s']:.2f}"


def _make_section(similar_cells: Sequence[Cell]) -> str:
    """Return a section of the page on cells of one fault that broke in the same way.

    The section shows the story of the first cell, and lists the strategies of the other cells.
    """
    cell = similar_cells[0]
    heading = f"### `{cell['lock']}` under {cell['fault']}: {cell['verdict']}"
    text = f"{_describe_sale(cell)}, {format_count(cell['lost_updates'] or 0, 'lost update')}"
    if cell["violations"]:
        text += f"; found: {', '.join(cell['violations'])}"
    text += "."
    if not cell["as_expected"]:
        text += f" **{describe_unexpected_cell(cell)}.**"
    other_locks = ", ".join(f"`{other_cell['lock']}`" for other_cell in similar_cells[1:])
    if other_locks:
        text += f" The same with {other_locks}."
    story = "\n".join(cell["story"])
    return f"{heading}\n\n{text}\n\n```text\n{story}\n```"


def list_fault_names(cells: Sequence[Cell]) -> list[str]:
    """Return the names of the faults of these cells, in the order in which faults are run."""
    return [name for name in FAULTS if any(cell["fault"] == name for cell in cells)]


def _make_grid(cells: Sequence[Cell], format_cell: Callable[[Cell], str]) -> dict[str, list[str]]:
    """Return lock -> the texts of its cells, one for each fault.

    If a lock has no cell under a fault, its text for that fault is empty.

    format_cell  returns the text of a cell
    """
    texts = {(cell["lock"], cell["fault"]): format_cell(cell) for cell in cells}
    faults = list_fault_names(cells)
    rows: dict[str, list[str]] = {}
    for lock in dict.fromkeys(cell["lock"] for cell in cells):
        rows[lock] = [texts.get((lock, fault), "") for fault in faults]
    return rows


def _make_matrix(
    cells: Sequence[Cell], format_cell: Callable[[Cell], str], note: str, *, left: int
) -> str:
    """Return a Markdown table of strategies by faults, with a note below it.

    format_cell  returns the text of a cell
    left         the number of left-aligned columns
    """
    headings = ["lock"] + list_fault_names(cells)
    rows = [[f"`{lock}`"] + texts for lock, texts in _make_grid(cells, format_cell).items()]
    return tables.markdown_table(headings, rows, note, left=left)


def _format_sign(cell: Cell) -> str:
    """Return the sign of a cell's verdict, in Rich's markup.

    If the verdict is not as expected, a `!` follows the sign.
    """
    sign, colour = SIGNS[cell["verdict"]]
    if not cell["as_expected"]:
        return f"[bold yellow]{sign}![/]"
    return f"[{colour}]{sign}[/]"


def _format_verdict(cell: Cell) -> str:
    text = cell["verdict"]
    if text != "exact":
        text = tables.make_bold_verdict(text)
    if not cell["as_expected"]:
        text += f" (expected {cell['expected']})"
    return text
