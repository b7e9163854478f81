"""A Redis client that makes a point after each command, so that a purchase can stop there.

The participant's code contains no points; what it sends is seen from outside.
"""

from typing import Any

import redis
from redis.client import Pipeline

from shop.sale.points import point


class Commands(redis.Redis):
    """The connections of another client, and a point `own:command-<n>` after the n-th command.

    sent  the names of the commands that were sent
    """

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(connection_pool=client.connection_pool)
        self.auto_close_connection_pool = False
        self.sent: list[str] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        reply = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self.answered(args)
        return reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """One that counts as one command, and each of its WATCH and reads before MULTI as one."""
        return _Pipeline(self, transaction, shard_hint)

    def answered(self, args: tuple[Any, ...]) -> None:
        """A command was answered: stop here if somebody asked for that."""
        self.sent.append(str(args[0]))
        point(f"own:command-{len(self.sent)}")


class _Pipeline(Pipeline):
    def __init__(self, client: Commands, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, shard_hint)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        there = bool(self.command_stack)
        replies = super().execute(raise_on_error)
        if there:
            self._client.answered(("EXEC",))
        return replies

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        reply = super().immediate_execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self._client.answered(args)
        return reply
