"""An answer of a shop, as its target reads it."""

from __future__ import annotations

from typing import Any

from loadtest.judge.verdict import OUTCOMES
from loadtest.target.answer import NONE, Answer
from loadtest.target.errors import TargetError, excerpt, file_of, wrong
from loadtest.target.target import Target


def read(target: Target, response: Any) -> Answer:
    """What a response to buy() means. Nothing is known where none came.

    Raises TargetError when buy() returned no response, or when the target cannot read it; a 5xx
    that it cannot read is an answer that leaves open what happened.
    """
    status = getattr(response, "status_code", None)
    if not isinstance(status, int):
        raise TargetError(
            f"{file_of(target)}: buy() returned {response!r:.60}; return the response of the "
            "request that buys, as buyer.client.post() returns it"
        )
    if status == 0:
        return NONE
    try:
        answer = target.read(response)
    except Exception as error:  # any: the code is not ours
        if status >= 500:
            return Answer("error", why=excerpt(response), open=True)
        note = f"It was to read {excerpt(response)}. {_hint(response)}"
        raise wrong(target, "read", error, note) from error
    if not isinstance(answer, Answer) or answer.outcome not in OUTCOMES:
        raise TargetError(
            f"{file_of(target)}: read() returned {answer!r:.60} for {excerpt(response)}; return "
            'sold(), sold_out(), again() or error("why")'
        )
    return answer


def _hint(response: Any) -> str:
    """What an answer in HTML often means."""
    if "html" not in str((response.headers or {}).get("Content-Type", "")):
        return ""
    return (
        "An HTML page is often a login or an error: does prepare() log in and send the CSRF "
        "token? Where the shop answers with pages, read response.text or response.url. "
    )
