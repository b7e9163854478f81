"""Sets the flag by which pretix's own tests leave its locks out, for every request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pretix.testutils.middleware import debugflags_var


def unlocked(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def answer(request: Any) -> Any:
        debugflags_var.set(frozenset({"skip-locking"}))
        return get_response(request)

    return answer
