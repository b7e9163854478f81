"""Resources that are closed when their event loop shuts down."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any


async def close_with_loop(*resources: Any) -> AsyncGenerator[None, None]:
    """Return a generator that closes the resources when the loop shuts down its generators.

    Call `await anext(generator)` once, so that the loop registers the generator. The generator also
    closes the resources when the last reference to it is dropped.

    Args:
        *resources: Objects with a coroutine function `aclose`, closed from first to last. Each is
            closed even if the closing of another resource is cancelled.
    """
    async with AsyncExitStack() as stack:
        for resource in reversed(resources):
            stack.push_async_callback(resource.aclose)
        yield
