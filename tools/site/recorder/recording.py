"""Records two buyers' moves in the real shop, and the results of faults, in the folder recorded/.

A schedule is an order of the moves of the two buyers, such as `AABBAB`.

python -m tools.site.recorder.recording
    schedules [STRATEGY ...]  play every schedule under these strategies, or under all, and record
                              the moves; this takes some ten seconds for each strategy
    compare [STRATEGY ...]    play the schedules again without recording them, and print the
                              strategies whose moves differ from the recording
    faults FOLDER ...         record the results of `make matrix` and `make faults` in these folders
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
from tools.site.worlds import RECORDED_FOLDER, Moves, format_recording, make_length_sort_key

SCHEDULES_FILE = RECORDED_FOLDER / "schedules.json"
FAULTS_FILE = RECORDED_FOLDER / "faults.json.gz"


def describe_strategies() -> dict[str, dict[str, Any]]:
    """Set Django up, and return what the site shows of each strategy, by the strategy's name.

    The site highlights each line of `code` that contains one of the texts in `marks`. These lines
    decide whether the strategy is correct.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    django.setup()
    from shop.strategies import STRATEGIES

    return {
        strategy.name: {
            "title": strategy.title,
            "summary": strategy.summary,
            "marks": strategy.highlights,
            "file": strategy.file,
            "code": extract_shown_code((ROOT / strategy.file).read_text()),
        }
        for strategy in STRATEGIES.values()
    }


def extract_shown_code(text: str) -> str:
    """Return the text of a strategy's file without its imports and its registration as STRATEGY."""
    code = text.partition("\nSTRATEGY = ")[0]
    lines = code.splitlines()
    # The last import is removed first, so that the line numbers of the others stay valid.
    for node in reversed(ast.parse(code).body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            del lines[node.lineno - 1 : node.end_lineno]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip()


def record_schedules(
    names: Sequence[str] = (), recorded_by_strategy: Mapping[str, Moves] | None = None
) -> Iterator[tuple[str, Moves]]:
    """Play every schedule of two buyers under each strategy; yield the strategy's name and moves.

    A strategy whose purchase does not have three moves is left out. The purchases run in this
    process, where Django is set up on the servers of a new stack.

    names                 the names of the strategies; empty for all
    recorded_by_strategy  strategy -> the moves of the earlier recording. A buyer that completed a
                          move in a turn of that recording gets more time to complete it
    """
    settings = {
        "SHOP_DB_POOL": "0",
        "SHOP_DEMO_PAUSES": "",
        "SHOP_LOCK_TTL": "60",  # longer than a schedule takes, even on a busy machine
        "SHOP_TOKEN_TTL": "60",
    }
    with (
        tempfile.NamedTemporaryFile() as log,
        Stack(node_count=1, workers=1, threads=1, log=log, extras=True) as stack,
    ):
        os.environ.update(stack.nodes[0].environment | settings)
        django.setup()
        from shop.strategies import STRATEGIES
        from tools.site.recorder import live

        for name in names or STRATEGIES:
            moves = live.record_moves(name, (recorded_by_strategy or {}).get(name))
            print(f"{name}: {len(moves)} turns recorded", file=sys.stderr, flush=True)
            if live.has_three_moves(moves):
                yield name, moves


def read_recorded_moves() -> dict[str, dict[str, Any]]:
    """Return the recorded moves of each strategy, by the strategy's name.

    These are the schedules without outside events.
    """
    return dict(json.loads(SCHEDULES_FILE.read_text())["moves"])


def save_moves(strategy: str, moves: dict[str, Any]) -> None:
    """Replace the moves of a strategy in SCHEDULES_FILE, in the order of STRATEGIES."""
    all_moves = read_recorded_moves() | {strategy: moves}
    in_order = {name: all_moves[name] for name in describe_strategies() if name in all_moves}
    recording = {"recorded": f"{datetime.now(UTC):%Y-%m-%d}", "moves": in_order}
    SCHEDULES_FILE.write_text(format_recording(recording))


def find_differing_strategies(names: Sequence[str] = ()) -> list[str]:
    """Play every schedule again, and return the strategies whose moves differ from the recording.

    Each turn that differs is printed to stderr: its events and state in the recording, and now.

    names  the names of the strategies; empty for all
    """
    recorded_by_strategy = read_recorded_moves()
    differing_strategies = []
    for name, moves in record_schedules(names, recorded_by_strategy):
        recorded_moves = recorded_by_strategy.get(name, {})
        if recorded_moves == moves:
            continue
        differing_strategies.append(name)
        for turns_made in sorted(recorded_moves.keys() | moves.keys(), key=make_length_sort_key):
            recorded_turn = recorded_moves.get(turns_made)
            if recorded_turn != moves.get(turns_made):
                print(f"{name} {turns_made}, recorded: {recorded_turn}", file=sys.stderr)
                print(f"{name} {turns_made}, now:      {moves.get(turns_made)}", file=sys.stderr)
    return differing_strategies


def collect_faults(folders: Sequence[Path]) -> dict[str, Any]:
    """Return what the page faults.html shows, from the results in these folders.

    The results are cells: a cell is the run of one strategy under one fault. If two folders have
    the same cell, the cell of the later folder is used. The date and the setup are those of the
    last folder, so the folder of `make faults` should be the last.

    A rush (200 buyers at once, without a fault) has no timeline here, because the timeline would
    have a lane for each buyer. Most numbers are rounded.
    """
    from loadtest.faults import FAULTS
    from loadtest.judge import history
    from loadtest.report import tables
    from loadtest.report.html_report import make_report_data

    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for folder in folders:
        last_summary = json.loads((folder / "summary.json").read_text())
        runs = make_report_data(last_summary, history.read([folder / "history.jsonl"]))["runs"]
        cells |= {(run["lock"], run["fault"]): run for run in runs}
    for run in cells.values():
        if run["fault"] == "rush":
            run["timeline"] = None
    titles = {"rush": "200 buyers for 100 units, and no fault"}  # the defaults of `make matrix`
    titles |= {name: fault.title for name, fault in FAULTS.items()}
    keys = product(describe_strategies(), titles)
    return {
        "runs": [round_numbers(cells[key]) for key in keys if key in cells],
        "title": f"the rush and every fault, {last_summary['started'][:10]}",
        "where": tables.describe_setup(last_summary),
        "faults": titles,
    }


def round_numbers(json_value: Any) -> Any:
    """Return a JSON value with its numbers rounded to integers, which makes the file smaller.

    The field `recovery_s` is not rounded, because the page shows two decimals of it.
    """
    if isinstance(json_value, float):
        return round(json_value)
    if isinstance(json_value, dict):
        rounded = {name: round_numbers(member) for name, member in json_value.items()}
        if "recovery_s" in json_value:
            rounded["recovery_s"] = json_value["recovery_s"]
        return rounded
    if isinstance(json_value, list):
        return [round_numbers(element) for element in json_value]
    return json_value


def main(arguments: Sequence[str]) -> int:
    """Run a command (see the module's docstring) and return the exit code.

    The exit code is 1 if `compare` found a strategy that differs, 2 for a wrong command line, and 0
    otherwise.
    """
    command = arguments[0] if arguments else ""
    names = arguments[1:]
    if command == "schedules":
        for strategy, moves in record_schedules(names):
            save_moves(strategy, moves)
    elif command == "compare":
        differing = find_differing_strategies(names)
        print(f"differing from the recording: {', '.join(differing) or 'none'}")
        return 1 if differing else 0
    elif command == "faults" and names:
        recorded_faults = collect_faults([Path(folder) for folder in names])
        text = json.dumps(recorded_faults, separators=(",", ":")).encode()
        FAULTS_FILE.write_bytes(gzip.compress(text, 9, mtime=0))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
