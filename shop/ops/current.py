"""The request that this thread or task answers, and what its log line and its metrics will say."""

from __future__ import annotations

import re
import secrets
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

#: What is taken over from a client or a proxy. Anything else could forge a log line, or fill it.
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
#: In a log line that belongs to no request.
NO_REQUEST = "-"


@dataclass(slots=True)
class Facts:
    """What is known of a request. Never who buys, nor the Idempotency-Key.

    request_id  names it in the answer and in every log line
    outcome     of a purchase: `sold`, `replayed`, that of the refusal, or `gone` where
                the client of an asgi node did not wait; empty for what is none
    lock        name of the strategy; empty until the request was understood
    asked       monotonic second at which a lock was asked for, None if none was
    waited      seconds until it was acquired, None if it was not
    held        seconds that it was held, None if it was not
    started     monotonic second at which the request came
    order       number of the order that a purchase was answered with, None if with none
    sale        the sale of that order
    """

    request_id: str
    outcome: str = ""
    lock: str = ""
    asked: float | None = None
    waited: float | None = None
    held: float | None = None
    order: int | None = None
    sale: int | None = None
    started: float = field(default_factory=time.monotonic)


current: ContextVar[Facts | None] = ContextVar("request", default=None)


def note(**facts: Any) -> None:
    """Set fields of the current request's Facts. Nothing happens outside a request."""
    known = current.get()
    if known is not None:
        for name, value in facts.items():
            setattr(known, name, value)


def request_id_of(given: str | None) -> str:
    """The id that came with a request if it is well formed, else a new one."""
    if given is not None and REQUEST_ID.match(given):
        return given
    return secrets.token_hex(16)


def request_id() -> str:
    """The current request's, NO_REQUEST outside of one."""
    known = current.get()
    return NO_REQUEST if known is None else known.request_id
