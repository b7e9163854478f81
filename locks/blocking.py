"""Runs an acquire in a thread, by blocking it at each step."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .acquisition import Acquisition, Ask, Listen, Step
from .clock import now
from .command import Arg, WireError
from .protocol import Wake
from .renewals import Renewals
from .scripts import Script, script

if TYPE_CHECKING:
    from .wakeups import Mailbox, WakeUps

T = TypeVar("T")


class Calls(Protocol):
    """Connections, to a server or to wherever a slot is."""

    def call(
        self, script: Script, keys: Sequence[bytes], args: Sequence[Arg], /, *, within: float | None
    ) -> Any: ...


class Parts(Protocol):
    """What a lock needs of its server: shared.Shared, or cluster.Slot."""

    @property
    def connections(self) -> Calls: ...
    @property
    def wakeups(self) -> WakeUps: ...
    @property
    def watchdog(self) -> Renewals: ...


def run(shared: Parts, acquisition: Acquisition, steps: Generator[Step, Any, T]) -> T:
    """What the steps lead to. Raises WireError, and passes on what a signal handler raises."""
    try:
        step = next(steps)
        while True:
            try:
                answer: Any = None
                if isinstance(step, Ask):
                    answer = ask(shared, acquisition, step)
                elif isinstance(step, Listen):
                    shared.wakeups.listen(step.until)
                else:
                    answer = _sleep(acquisition, step.mailbox)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()  # also when a signal handler raised between two steps


def ask(shared: Parts, acquisition: Acquisition, step: Ask) -> Any:
    """The script's reply. Raises WireError."""
    name, args, within = step
    return shared.connections.call(script(name), acquisition.keys, args, within=within)


def undo(shared: Parts, acquisition: Acquisition) -> None:
    """Leave the queue, and give the lock back if it is, or becomes, ours nevertheless."""
    step = acquisition.undo()
    if step is None:
        return
    reply = None
    try:
        reply = ask(shared, acquisition, step)
    except WireError as error:
        reply = error
    finally:
        acquisition.undone(reply)


def _sleep(acquisition: Acquisition, mailbox: Mailbox) -> Wake | None:
    """The wake-up, or None when it is time to ask: the subscription broke, the holder's lease ended
    or the wait is over."""
    while True:
        left = acquisition.asks_at() - now()
        if left <= 0:
            return None
        try:
            return mailbox.get(timeout=min(left, threading.TIMEOUT_MAX))
        except queue.Empty:
            continue
