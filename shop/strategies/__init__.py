"""Every value of `lock`, one page each: the lock, its flaw, its facts.

CONTRIBUTING.md says how to add one ("A strategy").
"""

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

from shop.sale.strategy import STRATEGIES, Strategy

__all__ = ["STRATEGIES", "Strategy"]


#: The STRATEGY of each file of this folder; in STRATEGIES in the order in which they are shown.
_found: list[Strategy] = [
    replace(import_module(f"{__name__}.{file}").STRATEGY, name=file.replace("_", "-"))
    for _, file, _ in iter_modules(__path__)
]
STRATEGIES.update((one.name, one) for one in sorted(_found, key=lambda one: one.place))
