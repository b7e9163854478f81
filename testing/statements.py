"""A statement as one short line, for a timeline."""

import re
from collections.abc import Sequence
from typing import Any

#: Characters that one column of the timeline holds.
WIDTH = 56


def short(sql: str, params: Any = None) -> str:
    """`SELECT stock WHERE id = 1`: its columns left out, its values put in, cut at WIDTH."""
    text = " ".join(sql.split()).replace('"', "").replace("`", "")
    text = re.sub(r"^SELECT .*? FROM ", "SELECT ", text)
    text = re.sub(r"^INSERT INTO (\S+) \(.*?\) VALUES", r"INSERT \1", text)
    text = re.sub(r" (ORDER BY|LIMIT|RETURNING) .*?(?= FOR UPDATE|$)", "", text)
    table = re.search(r"^(?:SELECT|INSERT|UPDATE|DELETE FROM) (\w+)", text)
    if table:
        text = text.replace(f"{table[1]}.", "")
    text = _with(text, params)
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def short_of_many(sql: str, rows: Sequence[Any]) -> str:
    """The same for executemany: with the values of the first row, and how many more there are."""
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    text = short(sql, rows[0] if rows else None)
    fits = len(text) + len(more) <= WIDTH
    return text + more if fits else text[: WIDTH - len(more) - 3] + "..." + more


def _with(text: str, params: Any) -> str:
    """The statement with its values in place of its placeholders."""
    if isinstance(params, (list, tuple)):
        for value in params:
            # psycopg's integers are a subclass whose repr is Int4(1).
            shown = int.__repr__(value) if isinstance(value, int) else repr(value)
            text = text.replace("%s", shown.replace("%", "%%"), 1)
    return text.replace("%%", "%")
