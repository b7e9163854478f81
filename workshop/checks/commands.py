"""A Redis client that makes a point after each command, so that a purchase can stop there.

The participant's code contains no points; what it sends is seen from outside.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import redis
from redis.client import Pipeline

from shop.sale.points import point

#: Names a file; every command of a purchase is written there, one JSON line each.
LOG = "WORKSHOP_COMMANDS"


class Commands(redis.Redis):
    """The connections of another client, and a point `own:command-<n>` after the n-th command.

    attempt  the purchase's key: which purchase a line of the log belongs to
    texts    the commands that were sent, without keys and values
    """

    def __init__(self, client: redis.Redis, attempt: str) -> None:
        super().__init__(connection_pool=client.connection_pool)
        self.auto_close_connection_pool = False
        self.attempt = attempt
        self.texts: list[str] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        reply = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self.note(text_of(args))
        return reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """One that counts as one command, and each of its WATCH and reads before MULTI as one."""
        return _Pipeline(self, transaction, shard_hint)

    def note(self, text: str) -> None:
        """A command was answered: write it down, and stop here if somebody asked for that."""
        self.texts.append(text)
        sent = len(self.texts)
        if path := os.environ.get(LOG):
            line = {"attempt": self.attempt, "n": sent, "text": text, "t": time.monotonic_ns()}
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        point(f"own:command-{sent}")


class _Pipeline(Pipeline):
    def __init__(self, client: Commands, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, shard_hint)
        self._client = client
        self._multi = transaction

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        texts = [text_of(command[0]) for command in self.command_stack]
        replies = super().execute(raise_on_error)
        if texts:
            self._client.note(f"MULTI {'; '.join(texts)} EXEC" if self._multi else "; ".join(texts))
        return replies

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        reply = super().immediate_execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self._client.note(text_of(args))
        return reply


def text_of(args: tuple[Any, ...]) -> str:
    """`SET .. NX PX 1000`: keys and values left out, options and numbers kept."""
    words = []
    for position, arg in enumerate(args):
        word = arg.decode(errors="replace") if isinstance(arg, bytes) else str(arg)
        if position == 0 or word.isdigit() or (word.isupper() and word.isalpha()):
            words.append(word)
        elif words[-1:] != [".."]:
            words.append("..")
    return " ".join(words)
