"""All uses of private names of Locust.

A new version of Locust may rename them. Then install() raises MissingName.
loadtest/rush/http_client_private.py uses the private names of Locust's HTTP client.
"""

from typing import Any

import locust.runners
from locust.contrib.fasthttp import ResponseContextManager
from locust.dispatch import UsersDispatcher
from locust.runners import MasterRunner, Runner, WorkerNode

from loadtest.rush import http_client_private
from loadtest.rush.http_client_private import init_assigns_attribute, raise_for_missing

#: Missed heartbeats, one per second, after which Locust considers a worker lost. Its own limit of 3
#: is too low if thousands of buyers begin at once. The limit is fixed when a worker connects.
MAX_MISSED_HEARTBEATS = 20


def install(**_: Any) -> None:
    """Patch Locust and its HTTP client for the whole process. Raises MissingName.

    Register it as a listener of init_command_line_parser, which fires before the runner exists.
    """
    require_names()
    http_client_private.install()
    locust.runners.HEARTBEAT_LIVENESS = MAX_MISSED_HEARTBEATS


def require_names() -> None:
    """Raise MissingName unless Locust has every undocumented name that the load test uses."""
    raise_for_missing(
        "locust",
        {
            "runners.HEARTBEAT_LIVENESS": hasattr(locust.runners, "HEARTBEAT_LIVENESS"),
            "Runner._users_dispatcher": init_assigns_attribute(Runner, "_users_dispatcher"),
            "UsersDispatcher._worker_nodes": init_assigns_attribute(
                UsersDispatcher, "_worker_nodes"
            ),
            "UsersDispatcher.add_worker": hasattr(UsersDispatcher, "add_worker"),
            "UsersDispatcher.remove_worker": hasattr(UsersDispatcher, "remove_worker"),
            # is_counted() in http_client_private.py uses this name.
            "ResponseContextManager._entered": hasattr(ResponseContextManager, "_entered"),
        },
        used_in=__file__,
    )


class FixedDispatcher(UsersDispatcher):
    """Locust's dispatcher of users to workers, but without rebalancing during a rush.

    In a rush, many users buy at the same instant. Rebalancing would stop some of them during their
    purchase. A worker that joins during a rush gets users in the next rush. The users of a lost
    worker are not replaced by new users, because they may have bought already.
    """

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Do not rebalance when a worker joins during a rush."""

    def remove_worker(self, worker_node: WorkerNode) -> None:
        """Do not rebalance when a worker is lost during a rush."""


def list_worker_ids_in_dispatch_order(runner: Any) -> list[str]:
    """Return the ids of the workers in the order in which they get users.

    Return an empty list if Locust runs without workers.
    """
    if not isinstance(runner, MasterRunner):
        return []
    dispatcher: Any = runner._users_dispatcher
    return [node.id for node in dispatcher._worker_nodes]
