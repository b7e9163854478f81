"""Small parts: the clock, attributes made late, steps and who does them."""

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds from an unknown moment on; the wall clock does not move it.

        It runs on while the machine is suspended, which time.monotonic() does not on Linux: a
        laptop that wakes up trusts no lease of the day before.
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic


S = TypeVar("S")
T = TypeVar("T")


def lazily(owner: object, name: str, make: Callable[[], T]) -> T:
    """owner's attribute `name`; the result of `make` the first time.

    For threading's primitives. Late, because gevent may patch threading after this package was
    imported and locks were made. By setdefault, because it is atomic: of two threads that come at
    once both get the same object.
    """
    attributes = vars(owner)
    found: T = attributes[name] if name in attributes else attributes.setdefault(name, make())
    return found


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
