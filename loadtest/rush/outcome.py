"""What a rush came to: judged once, written, and kept for the web UI and the exit code."""

from __future__ import annotations

import json
import logging
from typing import Any

from locust.env import Environment

from loadtest.judge.verdict import EXIT_CODES
from loadtest.rush.rush import Rush
from loadtest.stack.client import ShopUnreachable

logger = logging.getLogger("loadtest")

#: The result of the last rush, which GET /rush returns, and how many there were.
last_run: dict[str, Any] = {"number": 0}
#: The results of all rushes, oldest first.
runs: list[dict[str, Any]] = []


def conclude(environment: Environment, rush: Rush) -> None:
    """Judge a rush, once, and keep the result."""
    rush.is_judged = True
    try:
        rush.close()
        result = _result(environment, rush)
    except Exception as error:  # any: if the watcher ended here, the run would never end
        logger.exception("the rush was not judged")
        result = rush.failed(f"the rush was not judged: {error!r}")
    keep(environment, result)


def _result(environment: Environment, rush: Rush) -> dict[str, Any]:
    """Judge a rush that is over, and write its history. The verdict is `unknown`, with an `error`,
    where the shop does not answer or the history cannot be written."""
    assert environment.parsed_options is not None
    try:
        result = rush.result()
    except ShopUnreachable as error:
        logger.error("%s", error)
        result = rush.failed(str(error))
    if environment.parsed_options.history:
        try:
            rush.write(environment.parsed_options.history)
        except OSError as error:
            result = _not_written(result, "history", error)
    return result


def _not_written(result: dict[str, Any], option: str, error: OSError) -> dict[str, Any]:
    """The result with the verdict unknown: a run without its file is no evidence."""
    message = f"--{option} cannot be written ({error}): name a file that can be"
    logger.error("%s", message)
    return {**result, "verdict": "unknown", "error": message}


def keep(environment: Environment, result: dict[str, Any]) -> None:
    """Make a result the last run's, and the exit code that of its verdict."""
    options = environment.parsed_options
    assert options is not None
    if options.result:
        try:
            with open(options.result, "w") as file:
                json.dump(result, file)
        except OSError as error:
            result = _not_written(result, "result", error)
    number = last_run["number"] + 1
    last_run.clear()
    last_run.update(result, number=number)
    runs.append(dict(last_run))
    logger.info(
        "%s [%s]: %s orders for %s units, %s left on the shelf",
        result["verdict"].upper(),
        result.get("lock"),
        result.get("orders"),
        result.get("initial_stock"),
        result.get("stock_left"),
    )
    for what in result.get("not_judged", ()):
        logger.info("not judged: %s", what)
    for what in dict.fromkeys([result.get("why"), *result.get("findings", ())]):
        if what:
            logger.warning("%s", what)
    environment.process_exit_code = EXIT_CODES[result["verdict"]]
