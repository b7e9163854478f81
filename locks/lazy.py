"""Attributes that are created when they are first used."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def get_or_create(owner: object, name: str, make: Callable[[], T]) -> T:
    """Return an attribute of `owner`, which `make` creates when it is first used.

    Use it for the locks, conditions and events of threading. gevent may replace their
    classes after the import of this package, so they are created as late as possible. Two threads
    get the same object, because `setdefault` is atomic.

    Args:
        owner: The object that has the attribute.
        name: The attribute's name.
        make: Called without arguments to create the attribute.

    Returns:
        The attribute.
    """
    attributes = vars(owner)
    if name in attributes:
        existing: T = attributes[name]
        return existing
    created: T = attributes.setdefault(name, make())
    return created
