"""Strategies from your own files: SHOP_DEMO_STRATEGIES=mine=path, only in a demo.

A file defines `buy(attempt)`, and is read again after each change, without a restart. If it does
not load or raises, the answer is an error that names the line, never a 500.
"""

import __future__

import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType

import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from locks.errors import LockError
from shop.demo.steps import LeftAlone
from shop.errors import BadInput, ShopError
from shop.sale.purchase import Attempt, KeyHasBought, Receipt
from shop.strategies import STRATEGIES, Strategy

#: What a purchase may raise; anything else is a mistake in the file.
ITS_OWN = (
    *(ShopError, KeyHasBought, LockError, LeftAlone),
    *(redis.RedisError, DatabaseError, InterfaceError),
)


class BrokenFile(BadInput):
    text = "The file of this strategy does not work. Correct it and save."


def install() -> None:
    """Add the strategies that the setting names. Nothing happens outside a demo."""
    if settings.SHOP_DEMO:
        for name, path in settings.SHOP_DEMO_STRATEGIES.items():
            STRATEGIES[name] = strategy_of(name, Path(path))


def strategy_of(name: str, path: Path) -> Strategy:
    """A strategy whose code is in this file."""
    return Strategy(
        place=1000,
        name=name,
        title=f"Your own ({path.name})",
        summary="A file of your own; what it comes to is for you to find out.",
        marks=(),
        buy=OwnFile(name, path).buy,
        path=str(path.resolve()),
    )


class OwnFile:
    """The code of one file, loaded again after each change."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._guard = threading.Lock()
        self._loaded: tuple[str, ModuleType] | None = None

    def buy(self, attempt: Attempt) -> Receipt:
        """Sell one unit with the file's `buy`. Raises BrokenFile where the file is wrong."""
        buy = getattr(self.module(), "buy", None)
        if not callable(buy):
            raise BrokenFile(f"{self.path.name} defines no buy(attempt)")
        try:
            receipt = buy(attempt)
        except ITS_OWN:
            raise
        except (Exception, SystemExit) as error:
            raise BrokenFile(self._where(error)) from error
        if not isinstance(receipt, Receipt):
            raise BrokenFile(f"{self.path.name}: buy() returned {receipt!r}, not a Receipt")
        return receipt

    def module(self) -> ModuleType:
        """What the file defines, as it is now. Raises BrokenFile."""
        with self._guard:
            try:
                text = self.path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise BrokenFile(f"{self.path.name} cannot be read: {error}") from error
            if self._loaded is None or self._loaded[0] != text:
                self._loaded = text, self._run(text)
            return self._loaded[1]

    def _run(self, text: str) -> ModuleType:
        module = ModuleType(f"own_{self.name.replace('-', '_')}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # dataclasses look their module up
        lazily = __future__.annotations.compiler_flag  # a name that is not imported breaks nothing
        try:
            exec(compile(text, str(self.path), "exec", lazily), vars(module))
        except (Exception, SystemExit) as error:
            raise BrokenFile(self._where(error)) from error
        return module

    def _where(self, error: BaseException) -> str:
        """`ex05.py: line 12: NameError: ...`: the last line of the file that led there."""
        if isinstance(error, SyntaxError):
            return f"{self.path.name}: line {error.lineno}: {type(error).__name__}: {error.msg}"
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(self.path)
        ]
        line = f" line {lines[-1]}:" if lines else ""
        return f"{self.path.name}:{line} {type(error).__name__}: {error}"
