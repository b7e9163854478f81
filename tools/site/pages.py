"""The frame of every page, and the pages that are not documents.

These are the step-through, the table of schedules, the faults, and the search.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from loadtest.report import html_report as report
from loadtest.report.bundle import bundle
from testing.orders import list_orders
from tools.site import event_table
from tools.site.levels import levels
from tools.site.narration import narrate
from tools.site.recorder.recording import FAULTS, SCHEDULES, read_recorded_moves, strategies
from tools.site.turn_lines import NO_WORLD, lines_of
from tools.site.worlds import MOVES, Moves, World

HERE = Path(__file__).parent / "pages"
#: The pages that are not documents; they come first in the navigation.
OWN = {
    "Step through": "index.html",
    "Levels": "levels.html",
    "20 schedules": "schedules.html",
    "Every fault": "faults.html",
}
#: The entries of the navigation, each with its page.
NAVIGATION = {**OWN, "Documents": "contents.html", "Workshop": "workshop/overview.html"}
#: The entries that stand for many documents, and the condition of the template for each.
DOCUMENTS_IN_NAVIGATION = {
    "Documents": "not page.url.startswith('workshop/')",
    "Workshop": "page.url.startswith('workshop/')",
}
#: Every order of the moves of two buyers, such as AABBAB: there are 20.
ORDERS = sorted(list_orders([MOVES, MOVES], limit=20))
#: The cell that the page of the faults opens first, as its address names it.
FIRST_CELL = "token/pause"
#: The verdicts of the cells, the worst first.
VERDICTS = ("oversold", "deadlock", "undersold", "unknown", "not_run", "exact")
#: The description of the site for search engines. Pages in folders, which are documents and source
#: files, do without it, because it does not describe them.
DESCRIPTION = (
    '  <meta name="description" content="A shop that sells its last unit twice, and what stops it: '
    'recorded, move by move.">\n'
)
#: The schedule that the step-through shows as text in a browser without JavaScript.
STORY = "ABABAB"


def frame(
    name: str,
    main: str,
    *,
    up: str = "",
    data: Any = None,
    entry: str = "",
    fetches: bool = False,
) -> str:
    """Return a page, which loads nothing from other sites.

    Args:
        name: The page's title; the entry of the navigation with this name is marked as current.
        main: The page's content, as HTML.
        up: The relative address of the site's root, `../` for each folder of the page.
        data: The data of the page's script, which finds it as JSON in the element `data`.
        entry: The entry module of the page's script, in pages/; empty: no script.
        fetches: Whether the script may send requests to the server of the page.
    """
    scripts = ""
    if entry:
        script = report.as_script(bundle(HERE / entry))
        scripts = (
            f'<script type="application/json" id="data">{report.as_json(data)}</script>\n'
            f'<script type="module">\n{script}\n</script>'
        )
    return Template(read_part("frame/frame.html")).substitute(
        title=escape(f"Oversold: {name}"),
        description="" if up else DESCRIPTION,
        up=up,
        connect="connect-src 'self'; " if fetches else "",
        nav=navigation(name, up),
        main=main,
        day=json.loads(SCHEDULES.read_text())["recorded"],
        scripts=scripts,
    )


def navigation(current: str, up: str = "") -> str:
    links = [
        f'<a href="{up}{page}"{_current(name == current)}>{name}</a>'
        for name, page in NAVIGATION.items()
    ]
    return (
        f'<div class="site-head"><nav aria-label="Site"><a class="brand" href="{up}index.html">'
        f"Oversold</a> {' '.join(links)}</nav>"
        f'<form role="search" action="{up}search.html">'
        '<input type="search" name="q" aria-label="Search the documents" placeholder="Search">'
        "<button>Search</button></form></div>"
    )


def document_template() -> str:
    """Return the theme of MkDocs: the frame around its template of a document.

    MkDocs marks the entry of DOCUMENTS_IN_NAVIGATION that is current on each page.
    """
    page = frame("{{ page.title | e }}", read_part("frame/document.html"), up="{{ base_url }}/")
    for name, condition in DOCUMENTS_IN_NAVIGATION.items():
        link = f'{NAVIGATION[name]}">{name}</a>'
        current = f'"{{% if {condition} %}} aria-current="true"{{% endif %}}>'
        page = page.replace(link, link.replace('">', current), 1)
    return page


def render_step_through() -> str:
    main = Template(read_part("steps/index.html")).substitute(
        faults=len(recorded_faults()["faults"]) - 1,  # without the rush, which is not a fault
        levels=len(levels()),
        story=_story(read_recorded_moves()["none"], STORY),
    )
    turns = {name: narrate(moves) for name, moves in read_recorded_moves().items()}
    data = {"turns": packed_json(turns), "strategies": strategies()}
    return frame("Step through", main, data=data, entry="steps/steps.js")


def _story(moves: Moves, order: str) -> str:
    """Return the moves of a schedule as a list, for a browser without JavaScript."""
    turns_made = turns_in_order(moves, order)
    items = [
        f"<li>{text}</li>"
        for length in range(1, len(turns_made) + 1)
        for text in turn_texts(moves, turns_made[:length])
    ]
    return f"<ol>{''.join(items)}</ol><p><strong>Two orders, one unit: oversold.</strong></p>"


def turn_texts(moves: Moves, turns_made: str, world: World = NO_WORLD) -> list[str]:
    """Return the lines of the last of these turns as HTML."""
    texts = []
    for line in lines_of(moves, turns_made, world):
        text = f"<code>{escape(line.text)}</code>" if line.kind == "sql" else escape(line.text)
        texts.append(f"{line.buyer} {text}" if line.buyer else text)
    return texts


def render_schedules() -> str:
    """Return the table of the 20 schedules of two buyers, a row for each pattern of results."""
    recorded = read_recorded_moves()
    patterns = strategies_by_pattern(recorded)
    bodies = [
        _rows_of_pattern(names, [outcome(recorded[names[0]], order) for order in ORDERS])
        for names in patterns
    ]
    main = Template(read_part("schedules/schedules.html")).substitute(
        strategies=len(recorded),
        patterns=len(patterns),
        heads="".join(f'<th scope="col">{order}</th>' for order in ORDERS),
        bodies="\n".join(bodies),
        events=event_table.table(),
    )
    return frame("20 schedules", main)


def strategies_by_pattern(recorded: Mapping[str, Moves]) -> list[list[str]]:
    """Return groups of strategies that have the same result in every schedule."""
    groups: dict[object, list[str]] = {}
    for name, moves in recorded.items():
        pattern = tuple(
            (look, *buyers, remark)
            for look, buyers, remark in (outcome(moves, order) for order in ORDERS)
        )
        groups.setdefault(pattern, []).append(name)
    return list(groups.values())


def _rows_of_pattern(names: Sequence[str], outcomes: Sequence[tuple[str, list[str], str]]) -> str:
    """Return two rows: the strategies, and the results of the orders."""
    links = " ".join(f'<a href="index.html#{name}/{ORDERS[1]}">{name}</a>' for name in names)
    cells = [
        f'<td><a class="{look}" href="index.html#{names[0]}/{order}">'
        f"{'+'.join(buyers)}<small>{escape(remark)}</small></a></td>"
        for order, (look, buyers, remark) in zip(ORDERS, outcomes, strict=True)
    ]
    return (
        f'<tbody><tr class="names"><th scope="rowgroup" colspan="{len(ORDERS)}">'
        f'<span>{links}</span></th></tr>\n<tr class="pattern">{"".join(cells)}</tr></tbody>'
    )


def turns_in_order(moves: Moves, order: str) -> str:
    """Return the turns that are made if the buyers move in this order, until both have ended.

    The turn of a buyer who waits or has ended is left out.
    """
    turns_made = ""
    # The turns after `order` are for buyers that waited or began again; surplus ones are left out.
    for buyer in [*order, *"AB" * 4 * MOVES]:
        turns_made += buyer if turns_made + buyer in moves else ""
    return turns_made


def _turns(moves: Moves, order: str) -> Iterator[Mapping[str, Any]]:
    """Yield the recorded turns of an order, each with its `did` and `state`."""
    turns_made = turns_in_order(moves, order)
    for length in range(1, len(turns_made) + 1):
        yield moves[turns_made[:length]]


def outcome(moves: Moves, order: str) -> tuple[str, list[str], str]:
    """Return the outcome of a schedule: `good` or `bad`, the buyers with an order, and a remark.

    The remark names the buyer who reads again, or else the one who waits, or else the one who came
    too late.
    """
    events = [event for turn in _turns(moves, order) for event in turn["did"]]
    sold = sorted(event[0] for event in events if event[1:3] == ["ends", "sold"])
    waits = [event[0] for event in events if event[1] == "waits"]
    reads = [event[0] for event in events if event[1] == "after_read"]
    again = [buyer for buyer in "AB" if reads.count(buyer) > 1]
    remark = f"{waits[0]} waits" if waits else ""
    if again:
        remark = f"{again[0]} rereads"
    if not remark and len(sold) == 1:
        remark = f"{'AB'.replace(sold[0], '')} too late"
    return "bad" if len(sold) > 1 else "good", sold, remark


def recorded_faults() -> dict[str, Any]:
    """Return the data of report.html for whole runs of `make matrix` and `make faults`."""
    return dict(json.loads(gzip.decompress(FAULTS.read_bytes())))


def render_faults(data: Mapping[str, Any]) -> str:
    """Return the page with the report of recorded_faults() and the code of the strategies.

    The report is compressed; the browser unpacks it and writes it into the page.
    """
    runs = [{**run, "timeline": transpose_tables(run["timeline"])} for run in data["runs"]]
    data = {**data, "runs": runs, "sources": strategies(), "first": FIRST_CELL}
    page = report.render(data, HERE / "faults/faults.js")
    nav = navigation("Every fault")
    page = page.replace("<header>", f"{nav}\n<header>", 1)
    page = page.replace("</header>", f"{read_part('faults/to_table.html')}</header>", 1)
    page = page.replace("</main>", f"{read_part('faults/faults.html')}</main>", 1)
    page = page.replace("</style>", f"{read_part('frame/site.css')}</style>", 1)
    return Template(read_part("faults/packed.html")).substitute(
        nav=nav, packed=_packed(page), verdicts=verdict_table(data["runs"])
    )


def transpose_tables(timeline: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a timeline whose tables are lists of columns instead of rows.

    The values of a column resemble each other, and so the compressed page is a fifth smaller. Its
    script turns the columns into rows again.
    """
    if timeline is None:
        return None
    return {
        name: list(zip(*table, strict=True)) if isinstance(table, list) else table
        for name, table in timeline.items()
    }


def verdict_table(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return a row for each strategy, with its faults by verdict."""
    present = {cell["verdict"] for cell in cells}
    verdicts = [verdict for verdict in VERDICTS if verdict in present]
    faults: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        by_verdict = faults.setdefault(cell["lock"], {verdict: [] for verdict in verdicts})
        by_verdict[cell["verdict"]].append(cell["fault"])
    heads = "".join(f'<th scope="col">{verdict}</th>' for verdict in verdicts)
    rows = "\n".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(f"<td>{', '.join(by_verdict[verdict])}</td>" for verdict in verdicts)
        + "</tr>"
        for name, by_verdict in faults.items()
    )
    return f"<table><thead><tr><td></td>{heads}</tr></thead>\n<tbody>{rows}</tbody></table>"


def render_search(index: Mapping[str, Any]) -> str:
    """Return the page that searches the documents.

    Args:
        index: The index of MkDocs's search plugin. It has an entry for each page, and one for each
            section of a page, whose address has an anchor.
    """
    titles = {entry["location"]: entry["title"] for entry in index["docs"]}
    sections = []
    for entry in index["docs"]:
        page, number_sign, _ = entry["location"].partition("#")
        if number_sign:
            section = {
                "location": entry["location"],
                "page": titles[page],
                "heading": entry["title"],
                "text": " ".join(entry["text"].split()),
            }
            sections.append(section)
    return frame(
        "Search",
        read_part("search/search.html"),
        data=packed_json(sections),
        entry="search/search.js",
    )


def write_stylesheet(folder: Path) -> None:
    """Write the stylesheet of the site."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.css").write_text(
        (report.ASSETS / "look.css").read_text() + read_part("frame/site.css")
    )


def _current(is_current: bool) -> str:
    return ' aria-current="page"' if is_current else ""


def packed_json(data: object) -> str:
    """Return data as compressed JSON in Base64, which unpack.js reads."""
    return _packed(json.dumps(data, separators=(",", ":")))


def _packed(text: str) -> str:
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def read_part(name: str) -> str:
    """Return the text of a file in pages/."""
    return (HERE / name).read_text()
