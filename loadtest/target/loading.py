"""A target from its file."""

import runpy
from pathlib import Path

from loadtest.target.errors import TargetError, wrong
from loadtest.target.target import Target

#: What every target has to say, and how.
NEEDED = {
    "open": "put up `stock` units for sale",
    "buy": "send the request that buys, and return its response",
    "read": "say what a response means: sold(), sold_out(), again() or error()",
    "orders": "return how many orders there are, or a list of Order",
}
SEE = "docs/your-shop.md shows one"


def load(path: Path | str, host: str) -> Target:
    """The target that a file defines, for a shop at `host`. Raises TargetError."""
    file = Path(path)
    if not file.is_file():
        raise TargetError(f"there is no file {path}: name the file of your target; {SEE}")
    found = _class(file)
    missing = [name for name in NEEDED if getattr(found, name) is getattr(Target, name)]
    if missing:
        todo = "; ".join(f"{name}() has to {NEEDED[name]}" for name in missing)
        raise TargetError(
            f"{file.name}: {found.__name__} has no {' and no '.join(missing)}. {todo}. {SEE}"
        )
    found.file = str(file)
    try:
        target = found(host)
    except Exception as error:  # any: the code is not ours
        raise wrong(found, "__init__", error) from error
    target.name = target.name or file.stem
    return target


def _class(file: Path) -> type[Target]:
    """The one subclass of Target in a file. Raises TargetError."""
    name = f"target_{file.stem}"
    try:
        defined = runpy.run_path(str(file), run_name=name)
    except Exception as error:  # any: the code is not ours
        what = f"{type(error).__name__}: {error}"
        raise TargetError(f"{file.name} cannot be imported: {what}. Repair it first") from error
    own = [one for one in defined.values() if getattr(one, "__module__", "") == name]
    classes = [one for one in own if isinstance(one, type) and issubclass(one, Target)]
    if len(classes) != 1:
        found = ", ".join(one.__name__ for one in classes) or "none"
        raise TargetError(
            f"{file.name} has to define one subclass of loadtest.target.Target; there: {found}. "
            f"{SEE}"
        )
    return classes[0]
