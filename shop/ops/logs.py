"""Log lines, as text or as one JSON object per line, each with the id of its request."""

import logging
import re
from contextvars import ContextVar
from typing import Any

from django.core.exceptions import ImproperlyConfigured

#: The request id of log lines that are written outside a request.
NO_REQUEST = "-"
#: The id of the request that this thread or task answers.
request_id: ContextVar[str] = ContextVar("request_id", default=NO_REQUEST)
#: Characters that end a line or move a terminal's cursor.
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: Field of a log record -> its name in a JSON line, if the two names differ.
JSON_FIELDS = {"asctime": "time", "levelname": "level", "name": "logger"}


class RequestFilter(logging.Filter):
    """Gives every record the id of its request, and drops the lines of expected 4xx answers.

    A 4xx answer is expected, such as `sold_out`, if Django logs it without an exception to
    django.request. The line of any other 4xx answer, such as that to a request that Django could
    not read, is kept without its traceback, because the client is at fault.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        status = getattr(record, "status_code", None)  # None: the record is not about an answer
        if status is None or not 400 <= status < 500:
            return True
        is_expected = record.name == "django.request" and not record.exc_info
        record.exc_info = None  # no traceback, because the client is at fault
        return not is_expected


class TextFormatter(logging.Formatter):
    """Formats a record in one line and indents its traceback, so that no value can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # remove the traceback that another handler's formatter has cached
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        return CONTROL_CHARACTERS.sub(_escape, line)

    def formatException(self, ei: Any) -> str:
        return "\n".join(f"    {line}" for line in super().formatException(ei).splitlines())


def _escape(match: re.Match[str]) -> str:
    r"""Return the escape sequence of a control character, such as \n in two characters."""
    return match[0].encode("unicode_escape").decode()


#: Entries of logging.config's `formatters`, by LOG_FORMAT.
FORMATTERS: dict[str, dict[str, Any]] = {
    "text": {
        "()": TextFormatter,
        "format": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s",
    },
    "json": {
        "()": "pythonjsonlogger.json.JsonFormatter",
        "fmt": list(JSON_FIELDS) + ["request_id", "message"],
        "rename_fields": JSON_FIELDS,
    },
}


def _make_stderr_config(log_format: str) -> dict[str, Any]:
    """Return the part of a logging configuration that writes to stderr.

    log_format  `text` or `json`
    """
    return {
        "filters": {"request": {"()": RequestFilter}},
        "formatters": {"line": dict(FORMATTERS[log_format])},  # logging.config modifies it
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "filters": ["request"],
            }
        },
    }


def make_logging_config(*, log_format: str, level: str, access: bool) -> dict[str, Any]:
    """Return Django's LOGGING. Everything goes to stderr.

    log_format  `text` or `json`; others raise ImproperlyConfigured
    level       level of everything except the access lines
    access      whether to log one line per request (ObserveMiddleware)
    """
    if log_format not in FORMATTERS:
        allowed = ", ".join(FORMATTERS)
        raise ImproperlyConfigured(f"LOG_FORMAT is {log_format!r}: use one of {allowed}")
    return {
        **_make_stderr_config(log_format),
        "version": 1,
        "disable_existing_loggers": False,
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {"shop.access": {"level": "INFO" if access else "WARNING"}},
    }


def make_gunicorn_config(log_format: str, level: str) -> dict[str, Any]:
    """Return gunicorn's logconfig_dict. It is empty for `text`, which keeps gunicorn's format."""
    if log_format != "json":
        return {}
    error_logger = {"handlers": ["stderr"], "level": level.upper(), "propagate": False}
    return {
        **_make_stderr_config(log_format),
        "root": {"handlers": []},  # replaces gunicorn's default, which names a missing handler
        "loggers": {"gunicorn.error": error_logger},
    }
