"""Purchases in an event loop of this process, as an asgi node makes them."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from shop.asgi import Application
from shop.sale.async_checkout import Threads
from shop.tests.purchases import JsonReply, parse_reply

#: Seconds for all that is asked in one loop.
TIMEOUT = 30


class Loop:
    """What answers POST /buy in one event loop, with `whole` threads for locks that block."""

    def __init__(self, whole: int = 4) -> None:
        self.application = Application()
        self.application.threads = Threads(whole)

    async def buy(self, *, key: str | None = None, **wanted: object) -> JsonReply:
        """The answer to one purchase. Raises CancelledError where its client leaves."""
        body = json.dumps({"buyer": "ada", "lock": "redis"} | wanted).encode()
        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *([] if key is None else [(b"idempotency-key", key.encode())]),
        ]
        scope = {"type": "http", "method": "POST", "path": "/buy", "headers": headers}
        answer: Any = await self.application.answer(ASGIRequest(scope, BytesIO(body)))
        answer.json = lambda: json.loads(answer.content)
        return parse_reply(answer)


def in_a_loop(test: Callable[[Loop], Coroutine[Any, Any, None]], *, whole: int = 4) -> None:
    """Run the test in an event loop of its own."""

    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT):
            await test(Loop(whole))

    asyncio.run(bounded())
