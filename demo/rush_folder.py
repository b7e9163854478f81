"""The folder through which the page starts, watches and stops a rush.

A rush is many buyers at the same moment. A browser opens at most six connections to a host, so the
page itself cannot generate a rush: `make serve` does, and opens the sale before it. The folder
SHOP_RUSH_FOLDER is shared by `make serve` and the nodes, and has three files:

wanted  the rush to run. A node creates the file when the page starts a rush; make serve removes it
        after the rush. A node cannot create it a second time, so there is at most one rush
stop    created by a node, to stop the rush in `wanted`
state   the progress of the rush, and the figures of all past rushes, written by make serve
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import OperationalError

from demo.steps import NotNow
from shop.errors import Unavailable
from shop.sale import opening

#: Seconds from the release of a rush until its buyers give up.
DEADLINE_SECONDS = 60


def start(rush: Mapping[str, Any]) -> None:
    """Ask make serve for a rush.

    rush  lock, buyers, stock, hold_ms and product

    Raises NotNow if a rush is running, and Unavailable if make serve does not run the shop.
    """
    if not settings.SHOP_RUSH_FOLDER:
        raise Unavailable("no process runs rushes: start the shop with make serve")
    with tempfile.NamedTemporaryFile("w", dir=settings.SHOP_RUSH_FOLDER) as file:
        json.dump({**rush, "deadline": DEADLINE_SECONDS}, file)
        file.flush()
        try:
            # A link, unlike a write, never shows a half-written file. And if two requests create it
            # at the same time, only one of them succeeds.
            os.link(file.name, _path("wanted"))
        except FileExistsError:
            raise NotNow("A rush is running. Wait for it to finish.") from None
    # A request to stop that came too late has left this file. It must not stop the next rush.
    _path("stop").unlink(missing_ok=True)


def stop(*, product: str) -> None:
    """Stop the current rush and close its sale, so that purchases under way sell nothing.

    Raises NotNow if no rush is running. Raises Unavailable if the sale cannot be closed in time;
    the rush is stopped all the same.
    """
    if not _read("wanted"):
        raise NotNow("No rush is running: there is nothing to stop.")
    try:
        opening.close(product=product)
    except OperationalError as error:
        raise Unavailable(
            "The buyers are stopped, but the sale could not be closed, because purchases have "
            "locked the product's row. The next rush closes the sale."
        ) from error
    finally:
        _path("stop").touch()


def read_state() -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Return the state of the rushes, and the figures of the past rushes.

    The figures are a dict: number of the sale -> figures of its rush, named as in `summary.json` of
    a load test. The state has these fields:

    on      whether a rush is requested or running
    number  the number of past rushes
    rush    the current rush: sale, lock, buyers, arrived, answered, left_s; None if there is none
    """
    state = {"rush": None, "runs": {}, **_read("state")}
    past_rushes = {int(sale_id): figures for sale_id, figures in state["runs"].items()}
    rush_state = {
        "on": bool(_read("wanted")),
        "number": len(past_rushes),
        "rush": state["rush"],
    }
    return rush_state, past_rushes


def _path(name: str) -> Path:
    return Path(settings.SHOP_RUSH_FOLDER, name)


def _read(name: str) -> dict[str, Any]:
    """Return the JSON object in a file of SHOP_RUSH_FOLDER.

    It is empty if there is no such file, or no such folder.
    """
    if not settings.SHOP_RUSH_FOLDER:
        return {}
    try:
        return dict(json.loads(_path(name).read_text()))
    except FileNotFoundError:
        return {}
