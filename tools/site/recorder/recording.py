"""Writes recorded/: the moves of two buyers from a live shop, and the cells of `make faults`.

python -m tools.site.recorder.recording
    schedules [LOCK ...]  runs every order, some ten seconds a strategy
    compare [LOCK ...]    runs them, and compares with what is recorded
    faults FOLDER ...     of these folders of results/
"""

import ast
import gzip
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import django

from loadtest.stack.stack import Stack
from servers.embedded import ROOT
from tools.site.worlds import RECORDED, Moves, shorter_first

SCHEDULES, FAULTS = RECORDED / "schedules.json", RECORDED / "faults.json.gz"


def strategies() -> dict[str, dict[str, Any]]:
    """Every strategy by name, in the order in which they are shown: title, summary, file, code, and
    texts of the lines that decide."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    django.setup()
    from shop.strategies import STRATEGIES

    return {
        strategy.name: {
            "title": strategy.title,
            "summary": strategy.summary,
            "marks": strategy.marks,
            "file": strategy.file,
            "code": essence((ROOT / strategy.file).read_text()),
        }
        for strategy in STRATEGIES.values()
    }


def essence(text: str) -> str:
    """A strategy's file without its imports and its entry in the registry: docstring and code."""
    code = text.partition("\nSTRATEGY = ")[0]
    lines = code.splitlines()
    for node in reversed(ast.parse(code).body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            del lines[node.lineno - 1 : node.end_lineno]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip()


def schedules(
    locks: Sequence[str] = (), recorded_by_strategy: Mapping[str, Moves] | None = None
) -> Iterator[tuple[str, Moves]]:
    """Yield the name and the moves of every strategy whose purchase has three moves.

    They run on the servers of one node, with Django set up on them in this process.

    locks                 the strategies, or none for all
    recorded_by_strategy  what was recorded: a buyer that stopped is waited for
    """
    own = {
        "SHOP_DB_POOL": "0",
        "SHOP_DEMO_PAUSES": "",
        "SHOP_LOCK_TTL": "60",  # no lock ends while a busy machine takes its time
        "SHOP_TOKEN_TTL": "60",
    }
    with (
        tempfile.NamedTemporaryFile() as log,
        Stack(count=1, workers=1, threads=1, log=log, extras=True) as stack,
    ):
        os.environ.update(stack.nodes[0].environment | own)
        django.setup()
        from shop.strategies import STRATEGIES
        from tools.site.recorder import live

        for lock in locks or STRATEGIES:
            moves = live.record(lock, (recorded_by_strategy or {}).get(lock))
            print(f"{lock}: {len(moves)} moves", file=sys.stderr, flush=True)
            if live.has_three_moves(moves):
                yield lock, moves


def read_recorded_moves() -> dict[str, dict[str, Any]]:
    """The moves that are recorded, by strategy."""
    return dict(json.loads(SCHEDULES.read_text())["moves"])


def save_moves(lock: str, moves: dict[str, Any]) -> None:
    """Write the moves of a strategy among the others, in the order of the registry."""
    all_moves = read_recorded_moves() | {lock: moves}
    in_order = {name: all_moves[name] for name in strategies() if name in all_moves}
    data = {"recorded": f"{datetime.now(UTC):%Y-%m-%d}", "moves": in_order}
    text = json.dumps(data, separators=(",", ":")).replace('},"', '},\n"')
    SCHEDULES.write_text(text + "\n")


def differing_strategies(locks: Sequence[str] = ()) -> list[str]:
    """Return the strategies that move otherwise now than was recorded.

    Each move that differs is written to stderr, as recorded and as seen now.
    """
    recorded_by_strategy = read_recorded_moves()
    names = []
    for name, moves in schedules(locks, recorded_by_strategy):
        recorded = recorded_by_strategy.get(name, {})
        if recorded == moves:
            continue
        names.append(name)
        for turns_made in sorted(recorded.keys() | moves.keys(), key=shorter_first):
            if recorded.get(turns_made) != moves.get(turns_made):
                print(f"{name} {turns_made}, recorded: {recorded.get(turns_made)}", file=sys.stderr)
                print(f"{name} {turns_made}, now:      {moves.get(turns_made)}", file=sys.stderr)
    return names


def faults(folders: Sequence[Path]) -> dict[str, Any]:
    """The data of report.html of runs of `make matrix` and `make faults`, times in milliseconds.

    Cells of later folders take the place of earlier ones. Rushes come without their timelines: of
    200 lanes each.
    """
    from loadtest.faults import FAULTS as KNOWN
    from loadtest.judge import history
    from loadtest.report import tables
    from loadtest.report.html_report import report_data

    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        runs = report_data(summary, history.read([folder / "history.jsonl"]))["runs"]
        cells |= {(run["lock"], run["fault"]): run for run in runs}
    for run in cells.values():
        if run["fault"] == "rush":
            run["timeline"] = None
    titles = {"rush": "200 buyers for 100 units, and no fault"}
    titles |= {name: fault.title for name, fault in KNOWN.items()}
    keys = product(strategies(), titles)
    return {
        "runs": [rounded(cells[key]) for key in keys if key in cells],
        "title": f"the rush and every fault, {summary['started'][:10]}",
        "where": tables.setup_of(summary),
        "faults": titles,
    }


def rounded(value: Any) -> Any:
    """The same with numbers of milliseconds as integers."""
    if isinstance(value, float):
        return round(value)
    if isinstance(value, dict):
        return {name: v if name == "recovery_s" else rounded(v) for name, v in value.items()}
    if isinstance(value, list):
        return [rounded(element) for element in value]
    return value


def main(arguments: Sequence[str]) -> int:
    command = arguments[0] if arguments else ""
    names = arguments[1:]
    if command == "schedules":
        for lock, moves in schedules(names):
            save_moves(lock, moves)
    elif command == "compare":
        differing = differing_strategies(names)
        print(f"otherwise than recorded: {', '.join(differing) or 'none'}")
        return 1 if differing else 0
    elif command == "faults":
        data = faults([Path(folder) for folder in names])
        text = json.dumps(data, separators=(",", ":")).encode()
        FAULTS.write_bytes(gzip.compress(text, 9, mtime=0))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
