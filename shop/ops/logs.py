"""Log lines: text for people, one JSON object a line for machines, each with its request's id."""

import logging
import re
import secrets
from contextvars import ContextVar
from typing import Any

from django.core.exceptions import ImproperlyConfigured

#: What is taken over from a client or a proxy. Anything else could forge a log line, or fill it.
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
#: In a log line that belongs to no request.
NO_REQUEST = "-"
#: The id of the request that this thread or task answers.
request_id: ContextVar[str] = ContextVar("request_id", default=NO_REQUEST)
#: What could end a line, or move a terminal's cursor.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
JSON_FIELDS = {"asctime": "time", "levelname": "level", "name": "logger"}


def request_id_of(given: str | None) -> str:
    """The id that came with a request if it is well formed, else a new one."""
    if given is not None and REQUEST_ID.match(given):
        return given
    return secrets.token_hex(16)


class RequestFilter(logging.Filter):
    """Gives every record the id of the request that it belongs to, and keeps expected 4xx answers
    out of the log: sold out is an answer. A request that Django itself could not read keeps its
    line, without the traceback: nothing failed but the client."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        if not 400 <= getattr(record, "status_code", 500) < 500:
            return True
        is_expected = record.name == "django.request" and not record.exc_info
        record.exc_info = None
        return not is_expected


class TextFormatter(logging.Formatter):
    """One line a record, and its traceback indented: no value that is logged can forge a record."""

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # another handler's, as it was formatted there
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), line)

    def formatException(self, ei: Any) -> str:
        return "\n".join(f"    {line}" for line in super().formatException(ei).splitlines())


#: For `formatters` of logging.config, by LOG_FORMAT.
FORMATTERS: dict[str, dict[str, Any]] = {
    "text": {
        "()": TextFormatter,
        "format": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s",
    },
    "json": {
        "()": "pythonjsonlogger.json.JsonFormatter",
        "fmt": [*JSON_FIELDS, "request_id", "message"],
        "rename_fields": JSON_FIELDS,
    },
}


def _to_stderr(kind: str) -> dict[str, Any]:
    """The parts that both configurations share: one handler, `stderr`."""
    return {
        "filters": {"request": {"()": RequestFilter}},
        "formatters": {"line": {**FORMATTERS[kind]}},  # a copy: logging.config takes it apart
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "filters": ["request"],
            }
        },
    }


def logging_config(*, kind: str, level: str, access: bool) -> dict[str, Any]:
    """Django's LOGGING, all of it to stderr.

    kind    `text` or `json`; ImproperlyConfigured for another one
    level   of everything but the access lines
    access  one line for each request (observe.py)
    """
    if kind not in FORMATTERS:
        raise ImproperlyConfigured(f"LOG_FORMAT is {kind!r}: use one of {', '.join(FORMATTERS)}")
    return {
        **_to_stderr(kind),
        "version": 1,
        "disable_existing_loggers": False,
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {"shop.access": {"level": "INFO" if access else "WARNING"}},
    }


def gunicorn_config(kind: str, level: str) -> dict[str, Any]:
    """gunicorn's logconfig_dict; for text its own lines stay as they are."""
    if kind != "json":
        return {}
    own = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    return {**_to_stderr(kind), "root": {"handlers": []}, "loggers": {"gunicorn.error": own}}
