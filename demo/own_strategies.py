"""Strategies in the user's own files: SHOP_DEMO_STRATEGIES=mine=workshop/mine/ex05.py.

A file defines `buy(attempt)`. The file is loaded again after each change, without a restart. If the
file cannot be loaded, or if its `buy` raises an error that no correct purchase raises, the buyer is
answered 400 with the error and its line.
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

from demo.steps import StepAborted
from locks.errors import LockError
from shop.errors import BadInput, ShopError
from shop.sale.purchase import Attempt, KeyHasBought, Receipt
from shop.strategies import STRATEGIES, Strategy

#: Exceptions that a correct purchase may raise; any other is a mistake in the file.
EXPECTED_ERRORS = (
    ShopError,
    KeyHasBought,
    LockError,
    StepAborted,
    redis.RedisError,
    DatabaseError,
    InterfaceError,
)


class BrokenFile(BadInput):
    text = "The file of this strategy has a mistake. Correct the file and save it."


def add_own_strategies() -> None:
    """Add the strategies in the user's files, those of SHOP_DEMO_STRATEGIES, to STRATEGIES."""
    for name, path in settings.SHOP_DEMO_STRATEGIES.items():
        STRATEGIES[name] = make_strategy(name, Path(path))


def make_strategy(name: str, path: Path) -> Strategy:
    """Return a strategy that sells with the code of this file."""
    return Strategy(
        rank=1000,  # after all strategies of the project
        name=name,
        title=f"Your own ({path.name})",
        summary="Your own file. Run it to see its verdict.",
        highlights=(),
        buy=OwnFile(name, path).buy,
        path=str(path.resolve()),
    )


class OwnFile:
    """A user's Python file, whose code is loaded again after each change."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._load_lock = threading.Lock()
        self._loaded_text: str | None = None
        self._module = ModuleType("not_loaded")

    def buy(self, attempt: Attempt) -> Receipt:
        """Sell one unit with the function `buy` of the file.

        Raises BrokenFile if the file has a mistake.
        """
        buy = getattr(self.load_module(), "buy", None)
        if not callable(buy):
            raise BrokenFile(f"{self.path.name} defines no buy(attempt)")
        try:
            receipt = buy(attempt)
        except EXPECTED_ERRORS:
            raise
        except (Exception, SystemExit) as error:  # the file may call sys.exit()
            raise BrokenFile(self._describe(error)) from error
        if not isinstance(receipt, Receipt):
            raise BrokenFile(f"{self.path.name}: buy() returned {receipt!r}, not a Receipt")
        return receipt

    def load_module(self) -> ModuleType:
        """Return the module of the file, loaded again if its text has changed.

        Raises BrokenFile if the file cannot be read, or raises an error while it is loaded.
        """
        with self._load_lock:
            try:
                text = self.path.read_text(encoding="utf-8-sig")  # an editor may write a BOM
            except (OSError, UnicodeDecodeError) as error:  # it is missing, or not UTF-8
                raise BrokenFile(f"{self.path.name} cannot be read: {error}") from error
            if self._loaded_text != text:
                self._module = self._execute(text)
                self._loaded_text = text
            return self._module

    def _execute(self, text: str) -> ModuleType:
        """Return a new module with this text. Raises BrokenFile if the text raises an error."""
        module = ModuleType(f"own_{self.name.replace('-', '_')}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # the decorator @dataclass looks it up there
        # With this flag Python does not evaluate annotations: they may use names that the file does
        # not import.
        flags = __future__.annotations.compiler_flag
        try:
            exec(compile(text, str(self.path), "exec", flags), vars(module))
        except (Exception, SystemExit) as error:
            raise BrokenFile(self._describe(error)) from error
        return module

    def _describe(self, error: BaseException) -> str:
        """Describe an error and its line in the file: `ex05.py: line 12: NameError: x`.

        If other code raised the error, the line is the one from which the file called or imported
        that code. If no code of the file has run, the line is left out.
        """
        if isinstance(error, SyntaxError) and error.filename == str(self.path):
            return f"{self.path.name}: line {error.lineno}: {type(error).__name__}: {error.msg}"
        line_numbers = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(self.path)
        ]
        place = self.path.name
        if line_numbers:
            place += f": line {line_numbers[-1]}"
        return f"{place}: {type(error).__name__}: {error}"
