"""The rush that the page starts and stops.

A browser opens six connections to a host and can make no rush of its own. `make serve` runs it, and
opens the sale too. It and the nodes meet in a folder of this machine, SHOP_RUSH_FOLDER:

wanted  written by a node: the rush that the page asks for, until it is over; so there is one
stop    written by a node: that rush is to end
state   written by make serve: how far the rush is, and how each before it ended
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import OperationalError

from shop.demo.steps import NotNow
from shop.errors import Unavailable
from shop.sale import opening

#: Seconds after its release until the buyers of a rush give up.
DEADLINE = 60


def start(wanted: Mapping[str, Any]) -> None:
    """Ask for a rush: lock, buyers, stock, hold_ms, product. Raises NotNow, or Unavailable where
    nobody runs it."""
    if not settings.SHOP_RUSH_FOLDER:
        raise Unavailable("there is nobody to run it: start the shop with make serve")
    with tempfile.NamedTemporaryFile("w", dir=settings.SHOP_RUSH_FOLDER) as file:
        json.dump({**wanted, "deadline": DEADLINE}, file)
        file.flush()
        try:
            os.link(file.name, _path("wanted"))  # whole, and only the first one
        except FileExistsError:
            raise NotNow("A rush is on. Wait until it is over.") from None
    _path("stop").unlink(missing_ok=True)  # one that came when the rush before had just ended


def stop(*, product: str) -> None:
    """End the rush that is on, and its sale: what is still under way sells nothing any more.

    Raises NotNow, or Unavailable where the database does not answer in time.
    """
    if not _read("wanted"):
        raise NotNow("No rush is on: there is nothing to stop.")
    try:
        opening.close(product=product)
    except OperationalError as error:
        text = "the buyers are stopped; the sale could not be closed: purchases hold its row"
        raise Unavailable(f"{text}. The next rush closes it.") from error
    finally:
        _path("stop").touch()


def state() -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """How the rushes go; and sale -> what became of its rush, as in `summary.json`.

    on      whether a rush is on
    number  how many have ended
    rush    the present one: sale, lock, buyers, arrived, answered, left_s; None if none is on
    """
    told = {"rush": None, "runs": {}, **_read("state")}
    runs = {int(sale): run for sale, run in told["runs"].items()}
    return {"on": bool(_read("wanted")), "number": len(runs), "rush": told["rush"]}, runs


def _path(name: str) -> Path:
    return Path(settings.SHOP_RUSH_FOLDER, name)


def _read(name: str) -> dict[str, Any]:
    """What is in a file of the folder; nothing where there is none."""
    if not settings.SHOP_RUSH_FOLDER:
        return {}
    try:
        return dict(json.loads(_path(name).read_text()))
    except FileNotFoundError:
        return {}
