"""A foreign web page can change nothing in `make serve`, and can read nothing from it.

The page is open in the browser of the person who gives the demo: Chromium, next to the real stack.
It knows the ports, may send whatever a browser lets a page send, and tries to have an effect or to
read an answer. It comes from one of ORIGINS.
"""

import json
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import psycopg
import pytest
from playwright.sync_api import BrowserContext, Page, Response

from loadtest.commands.rushes import Setting
from loadtest.commands.serve import serving
from loadtest.stack.stack import Stack
from loadtest.tests.browser import launch_browser
from servers.tests.polling import eventually

#: A name that Chromium is made to resolve to 127.0.0.1.
NAME = "evil.test"
ARGUMENTS = (
    f"--host-resolver-rules=MAP {NAME} 127.0.0.1",
    # Newer Chromiums let no public page ask this machine. Other browsers do. And no renderer is
    # started for a page that is not open yet.
    "--disable-features=LocalNetworkAccessChecks,SpareRendererForSitePerProcess",
    # What a server is asked does not depend on the process that asks: one is enough for all sites.
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
)
#: Another site; another port of this machine (the same site to a browser); the target's own origin
#: by DNS rebinding: the page was loaded from the attacker, then its name was changed to 127.0.0.1.
ORIGINS = ("another site", "another port", "DNS rebinding")
#: How a page sends a POST to wherever it likes.
WAYS = ("form", "text form", "no-cors", "cors")

_FETCH = """
async ([url, options]) => {
  try {
    const answer = await fetch(url, {credentials: 'include', ...options});
    return {status: answer.status, text: await answer.text()};
  } catch { return {status: 0, text: ''}; }
}
"""
_SUBMIT = """
([url, fields, enctype]) => {
  const form = document.createElement('form');
  Object.assign(form, {action: url, method: 'POST', enctype});
  for (const [name, value] of Object.entries(fields))
    form.append(Object.assign(document.createElement('input'), {name, value}));
  document.body.append(form);
  form.submit();
}
"""
_EMBED = """
([tag, url]) => new Promise(done => {
  const it = Object.assign(document.createElement(tag), {onload: done, onerror: done});
  if (tag === 'link') it.rel = 'stylesheet';
  it[{link: 'href', object: 'data'}[tag] ?? 'src'] = url;
  document.body.append(it);
  it.offsetWidth;  // an object is loaded when it is laid out, else up to a second later
})
"""


@dataclass
class Attacker:
    """A page of one origin that attacks one port of this machine.

    statuses  the status codes that the target answered, even if the page cannot see them
    read      texts of answers that the page could read
    """

    page: Page
    origin: str
    target: str
    statuses: list[int] = field(default_factory=list)
    read: list[tuple[int, str]] = field(default_factory=list)

    def post(self, way: str, path: str, fields: Mapping[str, str]) -> None:
        url, body = self.target + path, dict(fields)
        if way in ("form", "text form"):
            enctype = "text/plain" if way == "text form" else "application/x-www-form-urlencoded"
            page_url = self.page.url
            with self.page.expect_response(lambda answer: answer.url == url) as answer:
                self.page.evaluate(_SUBMIT, [url, body, enctype])
            answer.value.finished()
            self.page.goto(page_url)
            return
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        options = {"method": "POST", "mode": way, "body": urlencode(body), "headers": form}
        self._note(self.page.evaluate(_FETCH, [url, options]))

    def get(self, path: str) -> None:
        """Send GET requests with and without cookies, for which CORS has different rules."""
        for credentials in ("include", "omit"):
            options = {"credentials": credentials}
            self._note(self.page.evaluate(_FETCH, [self.target + path, options]))

    def embed(self, tag: str, path: str) -> None:
        """Load the address as an image, a script, a style sheet and a frame."""
        self.page.evaluate(_EMBED, [tag, self.target + path])

    def _note(self, answer: dict[str, Any]) -> None:
        if answer["text"]:
            self.read.append((answer["status"], answer["text"]))

    def _listen(self, answer: Response) -> None:
        if answer.url.startswith(self.target) and not answer.url.endswith("/attack"):
            self.statuses.append(answer.status)


def attacking(context: BrowserContext, origin: str, port: int) -> Attacker:
    """Open the attacker's page, whose content comes from the test instead of a server."""
    page = context.new_page()
    target = f"http://{NAME if origin == 'DNS rebinding' else '127.0.0.1'}:{port}"
    own = {
        "another site": f"http://{NAME}/attack",
        "another port": "http://127.0.0.1:8888/attack",
        "DNS rebinding": f"{target}/attack",
    }[origin]
    empty = "<!doctype html><body>"
    page.route(own, lambda route: route.fulfill(body=empty, content_type="text/html"))
    page.goto(own)
    attacker = Attacker(page, origin, target)
    page.on("response", attacker._listen)
    return attacker


CROWD = {"user_count": "1", "spawn_rate": "1"}
#: What the attacker posts to Locust. FILE is a path, SINK an address of the attacker.
TO_LOCUST = {
    "a rush": ("/swarm", {}),
    "a file overwritten": ("/swarm", {"result": "FILE"}),
    "a file appended to": ("/swarm", {"history": "FILE"}),
    "a command as a product": ("/swarm", {"history": "FILE", "product": "$(id)", "host": "SINK"}),
    "the restock token sent elsewhere": ("/swarm", {"host": "SINK"}),
    "the buyers sent elsewhere": ("/swarm", {"nodes": "SINK", "user_count": "2"}),
    "another token": ("/swarm", {"restock_token": "guessed"}),
    "buyers that stay": ("/swarm", {"stay": "true"}),
    "a stop": ("/stop", {}),
    "figures wiped out": ("/stats/reset", {}),
    "another class of users": ("/user", {'{"user_class_name": "ShopUser", "host": "': '"}'}),
}
#: And to the shop. As a query too: then it is all the same what the body is.
TO_THE_SHOP = {
    "a sale": ("/buy", {"product": "apple", "buyer": "mallory", "lock": "none"}),
    "a sale with a hold": ("/buy?product=apple&buyer=mallory&lock=redis&hold_ms=5000", {}),
    "a restock": ("/restock?product=apple&stock=1000", {}),
    "a rush": ("/rush", {"lock": "none", "buyers": "5", "stock": "5", "hold_ms": "0"}),
    "a round": ("/steps", {"lock": "none"}),
    "a step": ("/steps/step", {"round": "1", "buyer": "A"}),
}
LOCUST_TELLS = (
    "/",
    "/logs",
    "/tasks",
    "/exceptions",
    "/exceptions/csv",
    "/stats/requests",
    "/stats/requests/csv",
    "/stats/failures/csv",
    "/stats/requests_full_history/csv",
    "/stats/report",
    "/stats/report?download=1",
    "/worker-count",
    "/login",
    "/stop",
    "/stats/reset",
    "/no-such-page",
)
THE_SHOP_TELLS = (
    "/",
    "/state",
    "/history",
    "/strategies",
    "/strategies/none/code",
    "/sales/latest",
    "/sales/1/orders",
    "/healthz",
    "/readyz",
    "/admin/login/",
    "/no-such-page",
)
TAGS = ("img", "script", "link", "iframe", "object")


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Stack, str]]:
    """Start `make serve`, and make one rush, so that there is something to read and to delete."""
    setting = Setting(buyers=10, nodes=1, workers=1)
    with tempfile.TemporaryFile() as log, serving(setting, log=log) as (stack, locust, _):
        form = {"user_count": 2, "spawn_rate": 100, "lock": "redis", "stock": 50}
        urlopen(f"{locust}/swarm", urlencode(form).encode(), timeout=30).close()
        eventually(lambda: "EXACT [redis]" in asked(f"{locust}/logs"), what="a rush is over")
        yield stack, locust


@pytest.fixture(scope="module")
def context() -> Iterator[BrowserContext]:
    with launch_browser(*ARGUMENTS) as browser:
        yield browser.new_context()


@pytest.fixture(scope="module")
def sink() -> Iterator[int]:
    """Open the port to which the attacker wants requests to be sent. It must get no connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def world(served: tuple[Stack, str], folder: Path) -> dict[str, Any]:
    """Return all state that an attack could change."""
    stack, locust = served
    with psycopg.connect(stack.database_url) as database:
        (orders,) = database.execute("SELECT count(*) FROM purchase_history").fetchone() or (0,)
        sales = tuple(database.execute("SELECT id, initial_stock FROM shop_sale ORDER BY id"))
        stock = tuple(database.execute("SELECT name, amount FROM product ORDER BY name"))
    return {
        "files": {path.name: path.read_bytes() for path in folder.iterdir()},
        "sales": sales,
        "orders": orders,
        "stock": stock,
        "round": json.loads(asked(f"{stack.nodes[0].url}/state?product=apple"))["steps"],
        "rushes": asked(f"{locust}/logs").count(" orders for "),
        "figures": asked(f"{locust}/stats/requests/csv").splitlines()[-1].split(",")[2],
    }


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def asked(url: str) -> str:
    """Return the response that a program, unlike a page, gets."""
    with urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("origin", ORIGINS)
def test_foreign_page_changes_nothing(
    served: tuple[Stack, str], context: BrowserContext, sink: int, tmp_path: Path, origin: str
) -> None:
    """A page that frames the shop cannot make the teacher press Start either."""
    (tmp_path / "mine.txt").write_text("my own\n")
    meant = {"FILE": str(tmp_path / "mine.txt"), "SINK": f"http://127.0.0.1:{sink}"}
    before = world(served, tmp_path)
    locust = attacking(context, origin, _port(served[1]))
    for attack, (path, options) in TO_LOCUST.items():
        fields = {**(CROWD if path == "/swarm" else {}), **options}
        for way in WAYS:
            locust.post(
                way, path, {name: meant.get(value, value) for name, value in fields.items()}
            )
        assert_refused(locust, attack)
    for path in ("/", "/stats/requests", "/stop", "/stats/reset"):
        for tag in TAGS:
            locust.embed(tag, path)
        assert_refused(locust, f"{path} embedded")
    shop = attacking(context, origin, served[0].nodes[0].port)
    for attack, (path, options) in TO_THE_SHOP.items():
        for way in WAYS:
            shop.post(way, path, options)
        assert_refused(shop, attack)
    assert world(served, tmp_path) == before


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("target", ["locust", "shop"])
def test_foreign_page_reads_nothing(
    served: tuple[Stack, str], context: BrowserContext, target: str, origin: str
) -> None:
    stack, locust = served
    port = _port(locust) if target == "locust" else stack.nodes[0].port
    page = attacking(context, origin, port)
    for path in LOCUST_TELLS if target == "locust" else THE_SHOP_TELLS:
        page.get(path)
    if origin == "DNS rebinding":  # its own origin, to the browser: it may read the refusal
        assert {status for status, _ in page.read} == {403}
        assert all("not allowed here" in text for _, text in page.read)
    else:
        assert page.read == []


def assert_refused(page: Attacker, attack: str) -> None:
    """Assert that all requests since the last call were refused, and that the page read nothing."""
    assert page.statuses, f"{attack}: nothing was sent"
    assert set(page.statuses) <= {400, 403}, attack
    if page.origin != "DNS rebinding":
        assert page.read == []
    page.statuses.clear()
