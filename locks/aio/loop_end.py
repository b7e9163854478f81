"""Resources that are closed when their event loop shuts down."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any


async def close_with_loop(*resources: Any) -> AsyncGenerator[None, None]:
    """Close the resources when the loop shuts down its asynchronous generators.

    The generator is also closed when its last reference is dropped. Advance it once: a generator
    that has not begun is not known to the loop.

    Args:
        *resources: Objects with a coroutine function `aclose`, closed from first to last. Each is
            closed even where the closing of another is cancelled.
    """
    async with AsyncExitStack() as stack:
        for resource in reversed(resources):
            stack.push_async_callback(resource.aclose)
        yield
