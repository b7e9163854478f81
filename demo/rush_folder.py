"""The folder through which the demo's page starts, watches and stops a rush.

A rush is many buyers who buy at the same moment. A browser opens at most six connections to a host,
so the page itself cannot generate a rush. The process `make serve` opens a sale and generates the
rush. That process and the nodes, which serve the page, share the folder SHOP_RUSH_FOLDER with three
files:

wanted  the options of the requested rush. A node creates the file when the page requests a rush;
        make serve removes it after the rush. As long as it exists, no node can create it again, so
        there is at most one rush
stop    created by a node, to stop the rush in `wanted`
state   the progress of the rush, and the figures of all finished rushes, written by make serve
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

#: Seconds from the start of a rush until its buyers give up.
DEADLINE_SECONDS = 60


def request_rush(rush: Mapping[str, Any]) -> None:
    """Request a rush (many buyers at the same moment) from the process `make serve`.

    rush  the options of the rush: lock, buyers, stock, hold_ms and product

    Raises NotNow if a rush is running, and Unavailable if make serve does not run the shop.
    """
    if not settings.SHOP_RUSH_FOLDER:
        raise Unavailable("no process runs rushes: start the shop with make serve")
    with tempfile.NamedTemporaryFile("w", dir=settings.SHOP_RUSH_FOLDER) as file:
        json.dump({**rush, "deadline": DEADLINE_SECONDS}, file)
        file.flush()
        try:
            # A link appears with the whole content, so make serve never reads half a file. If two
            # requests create the link at the same time, only one of them succeeds.
            os.link(file.name, _get_file_path("wanted"))
        except FileExistsError:
            raise NotNow("A rush is running. Wait for it to finish.") from None
    # The file `stop` may be left from a request that came after the end of its rush. Remove the
    # file, so that it does not stop the new rush.
    _get_file_path("stop").unlink(missing_ok=True)


def stop_rush(*, product: str) -> None:
    """Stop the current rush and close its sale, so that purchases under way sell nothing.

    A rush is many buyers at the same moment.

    Raises NotNow if no rush is running. Raises Unavailable if the sale cannot be closed in time.
    In that case the rush is stopped, too.
    """
    if not _read_json_file("wanted"):
        raise NotNow("No rush is running: there is nothing to stop.")
    try:
        opening.close_open_sale(product=product)
    except OperationalError as error:
        raise Unavailable(
            "The buyers are stopped, but the sale could not be closed, because purchases have "
            "locked the product's row. The next rush closes the sale."
        ) from error
    finally:
        _get_file_path("stop").touch()


def read_rushes() -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Return the state of the current rush, and the figures of all finished rushes.

    A rush is many buyers who buy at the same moment. The figures are a dict: number of the sale ->
    figures of its rush, named as in `summary.json` of a load test. The state has these fields:

    on      whether a rush is requested or running
    number  how many rushes are finished
    rush    the current rush: sale, lock, buyers, arrived, answered, left_s; None if there is none
    """
    state = {"rush": None, "runs": {}, **_read_json_file("state")}
    finished_rushes = {int(sale_id): figures for sale_id, figures in state["runs"].items()}
    rush_state = {
        "on": bool(_read_json_file("wanted")),
        "number": len(finished_rushes),
        "rush": state["rush"],
    }
    return rush_state, finished_rushes


def _get_file_path(name: str) -> Path:
    return Path(settings.SHOP_RUSH_FOLDER, name)


def _read_json_file(name: str) -> dict[str, Any]:
    """Return the JSON object in a file of SHOP_RUSH_FOLDER.

    The object is empty if the file does not exist, or if SHOP_RUSH_FOLDER is not set.
    """
    if not settings.SHOP_RUSH_FOLDER:
        return {}
    try:
        return dict(json.loads(_get_file_path(name).read_text()))
    except FileNotFoundError:
        return {}
