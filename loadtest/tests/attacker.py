"""A web page that somebody else wrote, open in the browser of the person who gives the demo.

It knows the ports, may send what a browser lets any page send, and tries to have an effect or to
read an answer. Where it comes from is one of ORIGINS.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import BrowserContext, Page, Response

#: A name that Chromium is made to resolve to 127.0.0.1.
NAME = "evil.test"
ARGUMENTS = (
    f"--host-resolver-rules=MAP {NAME} 127.0.0.1",
    # Newer Chromiums let no public page ask this machine. Other browsers do. And no renderer is
    # started for a page that nobody has opened yet.
    "--disable-features=LocalNetworkAccessChecks,SpareRendererForSitePerProcess",
    # What a server is asked does not depend on the process that asks: one is enough for all sites.
    *("--disable-site-isolation-trials", "--renderer-process-limit=1"),
)
#: Another site; another port of this machine (the same site to a browser); the target's own origin
#: by DNS rebinding: the page was loaded from the attacker, then its name came to mean 127.0.0.1.
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


class Elsewhere:
    """A server of the attacker: an empty page for any GET, and all that was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        elsewhere = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer("text/html", "<!doctype html><body>")

            def do_POST(self) -> None:  # as a shop would, so that a rush goes on
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                self.answer("application/json", json.dumps({"sale": 1, "outcome": "sold"}))

            def answer(self, kind: str, text: str) -> None:
                elsewhere.asked.append(f"{self.command} {self.path}")
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Elsewhere]:
        there = cls()
        thread = threading.Thread(target=there.server.serve_forever, args=(0.02,))
        thread.start()
        yield there
        there.server.shutdown()
        thread.join()
        there.server.server_close()


@dataclass
class Attacker:
    """A page of one origin, aimed at one port of this machine.

    statuses  what the target answered, whether the page may see it or not
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
            here = self.page.url
            with self.page.expect_response(lambda answer: answer.url == url) as answer:
                self.page.evaluate(_SUBMIT, [url, body, enctype])
            answer.value.finished()
            self.page.goto(here)
            return
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        options = {"method": "POST", "mode": way, "body": urlencode(body), "headers": form}
        self._note(self.page.evaluate(_FETCH, [url, options]))

    def get(self, path: str) -> None:
        """With cookies, and without: CORS has another rule for each."""
        for credentials in ("include", "omit"):
            options = {"credentials": credentials}
            self._note(self.page.evaluate(_FETCH, [self.target + path, options]))

    def embed(self, tag: str, path: str) -> None:
        """Load it as an image, a script, a style sheet or a frame."""
        self.page.evaluate(_EMBED, [tag, self.target + path])

    def _note(self, answer: dict[str, Any]) -> None:
        if answer["text"]:
            self.read.append((answer["status"], answer["text"]))

    def _listen(self, answer: Response) -> None:
        if answer.url.startswith(self.target) and not answer.url.endswith("/attack"):
            self.statuses.append(answer.status)


def attacking(context: BrowserContext, origin: str, port: int, elsewhere: Elsewhere) -> Attacker:
    """The attacker's page, opened."""
    page = context.new_page()
    if origin == "DNS rebinding":
        target = f"http://{NAME}:{port}"
        own = f"{target}/attack"
        empty = "<!doctype html><body>"
        page.route(own, lambda route: route.fulfill(body=empty, content_type="text/html"))
    else:
        target = f"http://127.0.0.1:{port}"
        name = NAME if origin == "another site" else "127.0.0.1"
        own = f"http://{name}:{elsewhere.port}/"
    page.goto(own)
    attacker = Attacker(page, origin, target)
    page.on("response", attacker._listen)
    return attacker
