"""Answers to requests that never reach Django, in the shop's own form."""

from __future__ import annotations

import json

from waitress.utilities import Error


class RequestError(Error):
    """A refusal before Django. `outcome` is what the shop's own answers have under this name."""

    outcome = "error"


class TooSlow(RequestError):
    """The request was not complete in time."""

    code = 408
    reason = "Request Timeout"


class Stopping(RequestError):
    """The node is stopping; this request had not begun."""

    code = 503
    reason = "Service Unavailable"
    outcome = "unavailable"


def as_json(error: Error) -> tuple[str, list[tuple[str, str]], bytes]:
    """Status line, headers and body of the answer. `error` may be one of waitress's own too."""
    body = {
        "outcome": getattr(error, "outcome", RequestError.outcome),
        "error": f"{error.reason}: {error.body}",
    }
    headers = [("Content-Type", "application/json")]
    if error.code == Stopping.code:
        headers.append(("Retry-After", "1"))
    return f"{error.code} {error.reason}", headers, json.dumps(body).encode()
