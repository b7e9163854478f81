"""What is no line in the log, or no more than one: answers that a client is to expect."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from django.core.exceptions import SuspiciousOperation


class ExpectedAnswers(logging.Filter):
    """Drops Django's warning of every 4xx: sold out is an answer. A request that Django itself
    could not read keeps its line, without the traceback: nothing failed but the client."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not 400 <= getattr(record, "status_code", 500) < 500:
            return True
        is_expected = record.name == "django.request" and not record.exc_info
        record.exc_info = None
        return not is_expected


def install() -> None:
    """Put the filter on Django's loggers; a filter on their parent would not see their records."""
    once = ExpectedAnswers()
    logging.getLogger("django.request").addFilter(once)
    for kind in _every_kind(SuspiciousOperation):
        logging.getLogger(f"django.security.{kind.__name__}").addFilter(once)


def _every_kind(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for more in kind.__subclasses__():
        yield from _every_kind(more)
