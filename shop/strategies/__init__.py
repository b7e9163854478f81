"""The strategies: ways to guard the stock. Each file has one strategy, its flaw and its properties.

`A0` to `A4` are the articles that docs/sources.md lists. A strategy is sound if it neither
oversells nor blocks all its buyers forever under any fault of the load test. Faults that no lock
can survive do not count. CONTRIBUTING.md says how to add a strategy ("A strategy").
"""

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

from shop.sale.strategy import STRATEGIES, Strategy

__all__ = ["STRATEGIES", "Strategy"]


#: The STRATEGY of each file in this folder. Its name is that of the file, with dashes.
_strategies: list[Strategy] = [
    replace(import_module(f"{__name__}.{module.name}").STRATEGY, name=module.name.replace("_", "-"))
    for module in iter_modules(__path__)
    if not module.ispkg  # shared/ has no strategy
]
_strategies.sort(key=lambda strategy: strategy.rank)  # the order in which they are shown
STRATEGIES.update((strategy.name, strategy) for strategy in _strategies)
