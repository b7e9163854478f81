"""Which worker of a node is the youngest."""

from __future__ import annotations

import mmap
import struct

#: In memory that all workers share, because the master imports this before it forks.
_age = mmap.mmap(-1, 8)


def announce(age: int) -> None:
    """A worker of this age has been made: the youngest so far."""
    struct.pack_into("q", _age, 0, age)


def is_youngest(age: int) -> bool:
    """Whether no younger worker has been made. The youngest one is asked to end only when the whole
    node is: after a reload, younger ones serve on."""
    return bool(struct.unpack_from("q", _age)[0] == age)
