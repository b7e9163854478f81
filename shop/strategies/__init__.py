"""Every value of `lock`, one page each: the lock, its flaw, its facts.

CONTRIBUTING.md says how to add one ("A strategy").
"""

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

from shop.sale.strategy import STRATEGIES, Strategy

__all__ = ["STRATEGIES", "Strategy"]


def _found() -> list[Strategy]:
    """The STRATEGY of each file of this folder, in the order in which they are shown."""
    found = [
        replace(import_module(f"{__name__}.{file}").STRATEGY, name=file.replace("_", "-"))
        for _, file, _ in iter_modules(__path__)
    ]
    return sorted(found, key=lambda strategy: strategy.place)


STRATEGIES.update((strategy.name, strategy) for strategy in _found())
