"""Refusal of return values that have to be awaited, because their code has not run yet."""

from collections.abc import Sequence
from inspect import isawaitable, iscoroutine


def refuse_awaitables(values: Sequence[object], message: str) -> None:
    """Raise ValueError with this message if one of these return values is an awaitable.

    The coroutines are closed first, so that Python does not warn that they were never awaited.
    """
    if not any(isawaitable(value) for value in values):
        return
    for coroutine in filter(iscoroutine, values):
        coroutine.close()
    raise ValueError(message)
