"""The pages of our own: the step-through, the table of orders, every fault."""

import gzip
import json
import re
from base64 import b64encode
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from loadtest.report import html as report
from testing.orders import orders as orders_of
from tools.site.recording import FAULTS, MOVES, SCHEDULES, kept, strategies

HERE = Path(__file__).parent / "pages"
#: The pages of our own, which the navigation names first.
OWN = {
    "Step through": "index.html",
    "All 20 orders": "schedules.html",
    "Every fault": "faults.html",
}
#: Every order in which two buyers can make their moves.
ORDERS = sorted(orders_of([MOVES, MOVES], limit=20))


def frame(name: str, main: str, *, up: str = "", data: Any = None, script: str = "") -> str:
    """A page. `up`: the way from its folder to the site's root, `../` for each folder."""
    scripts = ""
    if script:
        scripts = (
            f'<script type="application/json" id="data">{report.as_json(data)}</script>\n'
            f'<script type="module">\n{(report.ASSETS / "dom.js").read_text()}\n{script}\n</script>'
        )
    return Template(_read("frame.html")).substitute(
        title=escape(f"Oversold: {name}"),
        about="A shop that sells its last unit twice, and what stops it: recorded, move by move.",
        up=up,
        nav=navigation(name, up),
        main=main,
        day=json.loads(SCHEDULES.read_text())["recorded"],
        scripts=scripts,
    )


def navigation(current: str, up: str = "") -> str:
    pages = {**OWN, "Contents": "contents.html", "Documents": "overview.html"}
    links = [
        f'<a href="{up}{page}"{" aria-current=page" if name == current else ""}>{name}</a>'
        for name, page in pages.items()
    ]
    return (
        '<nav class="site-head" aria-label="Site"><strong>Oversold</strong>'
        f"<span>{' '.join(links)}</span></nav>"
    )


def step_through() -> str:
    data = {"moves": kept(), "strategies": strategies()}
    return frame(
        "Step through", _read("index.html"), data=data, script=_read("code.js") + _read("steps.js")
    )


def orders() -> str:
    """Strategies by the 20 orders of two buyers' moves."""
    rows = []
    for name, known in kept().items():
        cells = []
        for order in ORDERS:
            look, who, remark = outcome(known, order)
            cells.append(
                f'<td><a class="{look}" href="index.html#{name}/{order}">'
                f"{'+'.join(who)}<small>{escape(remark)}</small></a></td>"
            )
        rows.append(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>')
    heads = "".join(f'<th scope="col">{order}</th>' for order in ORDERS)
    main = Template(_read("schedules.html")).substitute(heads=heads, rows="\n".join(rows))
    return frame("All 20 orders", main)


def reached(moves: dict[str, dict[str, Any]], order: str) -> str:
    """The moves made in an order, with every buyer led to the end; those of a buyer who waits or
    has ended are passed over."""
    so_far = ""
    for buyer in [*order, *"AB" * 4 * MOVES]:
        so_far += buyer if so_far + buyer in moves else ""
    return so_far


def outcome(moves: dict[str, dict[str, Any]], order: str) -> tuple[str, list[str], str]:
    """`good` or `bad`; who has an order; who waits, or reads again, or is told sold out."""
    key = reached(moves, order)
    events = [event for n in range(len(key)) for event in moves[key[: n + 1]]["did"]]
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


def faults() -> str:
    """The report of a whole run of `make faults`, with the code that decides for each cell;
    compressed, for the browser to unpack and write."""
    data = json.loads(gzip.decompress(FAULTS.read_bytes()))
    data["sources"] = strategies()
    page = report.render(data, HERE / "code.js", HERE / "faults.js")
    nav = navigation("Every fault")
    page = page.replace("<header>", f"{nav}\n<header>", 1)
    page = page.replace("</main>", f"{_read('faults.html')}</main>", 1)
    page = page.replace("</style>", f"{_read('site.css')}</style>", 1)
    packed = b64encode(gzip.compress(page.encode(), 9, mtime=0)).decode()
    return Template(_read("packed.html")).substitute(nav=nav, packed=packed)


def tidied(page: str) -> str:
    """A page of the theme without its indents and empty lines, those of code apart, and its tables
    in boxes that a key can scroll."""
    box = '<div class="table" tabindex="0" role="group" aria-label="Table"><table class="plain">'
    page = page.replace("<table>", box).replace("</table>", "</table></div>")
    page = page.replace("<th></th>", "<td></td>")
    parts = re.split(r"(<pre.*?</pre>|<script.*?</script>)", page, flags=re.DOTALL)
    return "".join(p if n % 2 else re.sub(r"\s*\n\s*", "\n", p) for n, p in enumerate(parts))


def assets(folder: Path) -> None:
    """The stylesheets of the site: of the pages of our own, and of the documents."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.css").write_text((report.ASSETS / "look.css").read_text() + _read("site.css"))
    (folder / "documents.css").write_text(_read("documents.css"))


def _read(name: str) -> str:
    return (HERE / name).read_text()
