"""A guard of Locust's web UI: only its own page and programs on this machine may use it.

A browser lets any web page send a form to http://127.0.0.1:8089. Locust accepts the form, and
Locust's CORS headers let the page read the answer. The guard recognizes such requests by two
headers that no page can forge: Origin and Sec-Fetch-Site.

In DNS rebinding, the attacker's host name resolves to 127.0.0.1. Then the browser treats Locust as
the page's own server. The guard recognizes such requests by their Host header.
"""

import os
import re
from typing import Any

import flask
from locust.env import Environment

from loadtest.rush.option_parsers import RUSH_OPTION_PARSERS

#: Host names under which Locust may be reached, with any port.
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
#: The fields that a form may have besides the options of a rush. Locust's other options are files,
#: addresses and secrets, which can be set only on the command line.
ALLOWED_FORM_FIELDS = {"user_count", "spawn_rate", "run_time", "profile", "host"}
#: Headers that forbid other pages to show Locust in a frame or to load a part of it.
EMBEDDING_HEADERS = {"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin"}


def install(environment: Environment, web_ui: Any) -> None:
    """Let Locust's web UI, if there is one, refuse the requests that other pages send.

    Two environment variables allow more, each a comma-separated list. `LOCUST_ALLOWED_HOSTS` has
    further host names of the UI, without ports. `CSRF_TRUSTED_ORIGINS`, which the shop reads, too,
    has further origins from which a browser may load Locust's page, such as a forwarded port.

    No form may change the host of the shop, because Locust sends the restock token to that host.
    """
    if web_ui is None:
        return
    hosts = set(LOOPBACK_HOSTS) | _split_list(os.environ.get("LOCUST_ALLOWED_HOSTS", ""))
    origins = _split_list(os.environ.get("CSRF_TRUSTED_ORIGINS", ""))

    def refuse() -> tuple[dict[str, Any], int] | None:
        """Return the answer to a refused request; None lets Flask handle the request."""
        reason = _find_reason_to_refuse(flask.request, hosts, origins, environment)
        return ({"success": False, "message": reason}, 403) if reason else None

    def replace_cors_headers(response: flask.Response) -> flask.Response:
        for name, _ in list(response.headers):
            if name.startswith("Access-Control"):
                del response.headers[name]
        response.headers.update(EMBEDDING_HEADERS)
        return response

    web_ui.app.before_request(refuse)
    # Flask runs these functions in reverse order, so the first one runs after Locust's own.
    web_ui.app.after_request_funcs.setdefault(None, []).insert(0, replace_cors_headers)


def _split_list(text: str) -> set[str]:
    """Return the entries of a comma-separated list, in lower case."""
    return {word.strip().lower() for word in text.split(",")} - {""}


def _is_trusted(origin: str, trusted_origins: set[str]) -> bool:
    """Return whether an origin is trusted.

    An entry https://*.example.com in `trusted_origins` means that all subdomains are trusted.
    """
    scheme, _, host = origin.lower().partition("://")
    accepted_entries = {origin.lower()}
    while "." in host:
        _, _, host = host.partition(".")
        accepted_entries.add(f"{scheme}://*.{host}")
    return not trusted_origins.isdisjoint(accepted_entries)


def _find_reason_to_refuse(
    request: flask.Request, hosts: set[str], trusted_origins: set[str], environment: Environment
) -> str:
    """Return why this request is refused; empty if it is allowed."""
    host = request.headers.get("Host", "")
    origin = request.headers.get("Origin", "")
    fetch_site = request.headers.get("Sec-Fetch-Site", "")
    if re.sub(r":\d+$", "", host).lower() not in hosts:
        return f"the host {host[:64]!r} is not allowed here: add it to LOCUST_ALLOWED_HOSTS"
    if origin and origin.partition("://")[2] != host and not _is_trusted(origin, trusted_origins):
        advice = ""
        if "://" in origin:
            advice = (
                "; if you open Locust under this address, start it with "
                f"CSRF_TRUSTED_ORIGINS={origin[:64]}"
            )
        return f"a page of {origin[:64]!r} may not use Locust: use Locust's own page{advice}"
    is_click_on_link = request.path == "/" and request.headers.get("Sec-Fetch-Dest") == "document"
    if fetch_site not in ("", "same-origin", "none") and not is_click_on_link:
        return "a page of another site may not use Locust: use Locust's own page"
    if request.path == "/user":
        return "the classes of users are set by the locustfile only"
    if refused_fields := set(request.form) - ALLOWED_FORM_FIELDS - set(RUSH_OPTION_PARSERS):
        return f"{min(refused_fields)[:64]} is set on Locust's command line only"
    if request.form.get("host", environment.host) != environment.host:
        return "host is set on Locust's command line only"
    return ""
