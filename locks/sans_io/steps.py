"""Generators of steps, and a function that runs them by blocking."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def run_steps(steps: Generator[S, Any, T], do: Callable[[S], Any]) -> T:
    """Perform each step by calling `do`, and send the step's result into the generator.

    Args:
        steps: The generator. An exception that `do` raises is thrown into it.
        do: Performs one step and returns its result.

    Returns:
        The generator's result. Exceptions that leave the generator are passed on.
    """
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
        steps.close()  # needed if a signal handler raised an exception between two steps
