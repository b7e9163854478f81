"""Every value of `lock`, one page each: the lock, its flaw, its facts.

CONTRIBUTING.md says how to add one ("A strategy").
"""

from importlib import import_module
from pkgutil import iter_modules

from shop.sale.strategy import STRATEGIES, Strategy

__all__ = ["STRATEGIES", "Strategy"]


def _found() -> list[Strategy]:
    """The STRATEGY of each file of this folder, in the order in which they are shown."""
    files = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
    return sorted((file.STRATEGY for file in files), key=lambda strategy: strategy.place)


STRATEGIES.update((strategy.name, strategy) for strategy in _found())
