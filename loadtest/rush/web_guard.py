"""Who may ask Locust's web UI: its own page, and programs. No other page that a browser has open.

A browser lets any web page send a form to http://127.0.0.1:8089. Stock Locust takes it, and answers
with CORS headers that let the page read the rest. Two headers that no page can forge show such
requests: Origin and Sec-Fetch-Site. The Host header shows DNS rebinding: the page's own
name has come to mean 127.0.0.1, so to the browser Locust is the page's own server.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: A name or an address, and a port. Werkzeug's host_is_trusted knows no address of IPv6.
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SAFE = ("GET", "HEAD", "OPTIONS")
#: No page may show Locust in a frame or load a part of it; no type of content is guessed.
HEADERS = [
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
]


class Guard:
    """A WSGI application that refuses what is not for `app`, with 403 and a sentence as JSON.

    hosts  names under which Locust may be asked, without ports, beside the loopback names; the port
           does not matter: a page cannot send another Host than that of its own address
    token  LOCUST_TOKEN. With one, a program needs it for everything but reading.
    """

    def __init__(self, app: WSGIApplication, *, hosts: Collection[str], token: str) -> None:
        self.app = app
        self.hosts = {name.lower() for name in (*LOOPBACK, *hosts)}
        self.token = token

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        refusal = self._refusal(environ)
        if refusal:
            body = json.dumps({"success": False, "message": refusal}).encode()
            length = ("Content-Length", str(len(body)))
            start_response(
                "403 Forbidden", [("Content-Type", "application/json"), length, *HEADERS]
            )
            return [body]

        def start(
            status: str,
            headers: list[tuple[str, str]],
            error: tuple[type[BaseException], BaseException, TracebackType]
            | tuple[None, None, None]
            | None = None,
            /,
        ) -> Any:
            own = [it for it in headers if not it[0].lower().startswith("access-control-")]
            return start_response(status, [*own, *HEADERS], error)

        return self.app(environ, start)

    def has_token(self, environ: WSGIEnvironment) -> bool:
        """Whether a request shows LOCUST_TOKEN; none does where there is none."""
        given = str(environ.get("HTTP_AUTHORIZATION", "")).encode()
        return bool(self.token) and secrets.compare_digest(given, f"Bearer {self.token}".encode())

    def _refusal(self, environ: WSGIEnvironment) -> str:
        """Why this request is refused; empty where it is not."""
        host = str(environ.get("HTTP_HOST", ""))
        parts = HOST.fullmatch(host)
        if parts is None or parts[1].lower() not in self.hosts:
            return (
                f"the host {host[:64]!r} is not allowed here: name it in --web-allowed-hosts or "
                "LOCUST_ALLOWED_HOSTS"
            )
        origin = str(environ.get("HTTP_ORIGIN", ""))
        site = str(environ.get("HTTP_SEC_FETCH_SITE", ""))
        if origin and origin.partition("://")[2] != host:
            return (
                f"a page of {origin[:64]!r} is not allowed here, only Locust's own is: open that "
                "one, under a name of --web-allowed-hosts where it is not on this machine"
            )
        if site not in ("", "same-origin", "none") and not _is_opened(environ):
            return "a page of another site is not allowed here, only Locust's own is: open that one"
        by_own_page = bool(origin) or site == "same-origin"
        if (
            self.token
            and environ["REQUEST_METHOD"] not in SAFE
            and not by_own_page
            and not self.has_token(environ)
        ):
            return "a program is not allowed here without Authorization: Bearer and LOCUST_TOKEN"
        return ""


def _is_opened(environ: WSGIEnvironment) -> bool:
    """Whether this is a click on a link to Locust, whose page cannot read the answer."""
    wanted = {"HTTP_SEC_FETCH_MODE": "navigate", "HTTP_SEC_FETCH_DEST": "document"}
    return environ["REQUEST_METHOD"] == "GET" and all(
        environ.get(header) == value for header, value in wanted.items()
    )
