"""Finds mistakes in the participant's code that an `except` in the same code hides."""

import ast
import linecache
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

import redis
from django.core.exceptions import FieldError
from django.db import ProgrammingError

from workshop.refusal import Refusal

#: Errors that only a mistake in the participant's code can cause, and never a server.
MISTAKES = (NameError, AttributeError, TypeError, FieldError, ProgrammingError, redis.DataError)
#: The codes of refusals whose texts contain the message of an error already.
CODES_WITH_ERROR = ("raises", "broken", "check-failed", "wrong-arguments", "not-guarded")


class ExceptClause(NamedTuple):
    """An `except` clause of the participant's file.

    try_lines     the lines of its `try` block
    except_lines  the lines of the `except` block
    error_names   all names after `except`, among them the names of the error classes
    """

    try_lines: range
    except_lines: range
    error_names: frozenset[str]

    def lists_class_of(self, error: BaseException) -> bool:
        """Return whether the `except` lists the error's own class. A base class does not count."""
        return type(error).__name__ in self.error_names


class SwallowedMistakes:
    """A context manager that records mistakes which an `except` in the participant's file hides.

    If the `except` lists the error's own class, the participant expected the error, and it is not a
    mistake. Tracing the lines of the file is slow, so they are traced only if the file has an
    `except`.

    _raised_mistakes  the last mistake in each running function of the file, and its line
    _caught_mistakes  the mistakes that an `except` caught, and their lines
    """

    def __init__(self, file: Path) -> None:
        self._file = str(file)
        self._except_clauses = _find_except_clauses(file)
        self._raised_mistakes: dict[FrameType, tuple[int, BaseException]] = {}
        self._caught_mistakes: list[tuple[int, BaseException]] = []

    def __enter__(self) -> Self:
        """Trace this thread and new ones, but only if the file has an `except`."""
        self._previous_trace = sys.gettrace()
        self._previous_trace_of_new_threads = threading.gettrace()
        if self._except_clauses:
            threading.settrace(self._trace_call)
            sys.settrace(self._trace_call)
        return self

    def __exit__(self, *error: object) -> None:
        if self._except_clauses:
            sys.settrace(self._previous_trace)
            threading.settrace(self._previous_trace_of_new_threads)

    def replace_refusal(self, refusal: Refusal) -> Refusal:
        """Return a refusal for the first hidden mistake, which probably caused this `refusal`.

        Return `refusal` unchanged if no mistake was hidden, or if it contains an error already.
        """
        if not self._caught_mistakes or refusal.code in CODES_WITH_ERROR:
            return refusal
        line, error = self._caught_mistakes[0]
        text = linecache.getline(self._file, line).strip()
        details = {"line": line, "text": text, "error": f"{type(error).__name__}: {error}"}
        return Refusal("mistake-caught", details, refusal.story)

    def _trace_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Trace the lines of a called function only if it is in the participant's file."""
        return self._trace_line if frame.f_code.co_filename == self._file else None

    def _trace_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Remember a mistake that the traced function raises, and record it if it is caught.

        Python calls this for each line, exception and return of the function (see sys.settrace()).
        """
        if event == "exception":
            _, error, _ = arg
            self._raised_mistakes.pop(frame, None)  # only the last error of a function counts
            if isinstance(error, MISTAKES):
                self._raised_mistakes[frame] = frame.f_lineno, error
        elif event == "line" and frame in self._raised_mistakes:
            self._record_if_caught(frame)
        elif event == "return":
            self._raised_mistakes.pop(frame, None)
        return self._trace_line

    def _record_if_caught(self, frame: FrameType) -> None:
        """Record the mistake of this frame as caught if an `except` for it is now running.

        If the `except` lists the error's own class, the error is no mistake and is not recorded.
        """
        line, error = self._raised_mistakes[frame]
        for clause in self._except_clauses:
            if line in clause.try_lines and frame.f_lineno in clause.except_lines:
                del self._raised_mistakes[frame]
                if not clause.lists_class_of(error):
                    self._caught_mistakes.append((line, error))
                return


def _find_except_clauses(file: Path) -> list[ExceptClause]:
    """Return every `except` clause of a file; none if the file has a syntax error."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return []  # the check will refuse the file as broken
    return [
        ExceptClause(
            try_lines=_find_line_range(node.body),
            except_lines=_find_line_range(handler.body),
            error_names=_find_names_in(handler.type),
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
        for handler in node.handlers
    ]


def _find_line_range(body: list[ast.stmt]) -> range:
    """Return the numbers of the lines from the first statement to the last one."""
    return range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1)


def _find_names_in(caught_classes: ast.expr | None) -> frozenset[str]:
    """Return all names in the expression after `except`.

    For `except redis.DataError` they are `redis` and `DataError`.

    caught_classes  the expression; None for `except:` without a class
    """
    nodes = list(ast.walk(caught_classes)) if caught_classes else []
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    attributes = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    return frozenset(names + attributes)
