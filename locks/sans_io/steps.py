"""run_steps: runs a generator that yields the I/O to perform, in the calling thread.

The generator makes the decisions. Each step that it yields describes one action, such as sending a
command; the caller performs the action. So threads and asyncio can run the same generator.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def run_steps(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Call `perform` with each step, and send the step's result into the generator.

    Args:
        steps: The generator. An exception that `perform` raises is thrown into it.
        perform: Performs one step and returns its result.

    Returns:
        The generator's result. Exceptions that leave the generator are passed on.
    """
    try:
        step = next(steps)
        while True:
            try:
                step_result = perform(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(step_result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()  # needed if a signal handler raised an exception between two steps
