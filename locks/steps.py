"""Runs a generator of steps: whatever does a step sends its answer, or its exception, back in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def run(steps: Generator[S, Any, T], do: Callable[[S], Any]) -> T:
    """Do each step by calling `do`. Returns the generator's result, and raises what it raises."""
    try:
        step = next(steps)
        while True:
            try:
                answer = do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()  # also when a signal handler raised between two steps


async def run_async(steps: Generator[S, Any, T], do: Callable[[S], Awaitable[Any]]) -> T:
    """The same by awaiting `do`. A cancellation is thrown into the steps, too."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
