"""An attribute that is made when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

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
