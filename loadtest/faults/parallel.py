"""One step for all trials of a fault at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from loadtest.faults.trial import Trial


def each(trials: Sequence[Trial], what: Callable[[Trial], object]) -> None:
    """Call it for all trials at once, in threads. Raises the first error after all have ended."""
    errors: list[BaseException] = []

    def one(trial: Trial) -> None:
        try:
            what(trial)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(trial,), daemon=True) for trial in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
