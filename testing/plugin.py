"""The fixtures `interleave` and `rush`, for pytest with pytest-django."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(name="interleave")
def _interleave(transactional_db: None) -> Callable[..., Any]:
    """Return `interleave`, on a database whose commits other threads see."""
    from .interleaving import interleave

    return interleave


@pytest.fixture(name="rush")
def _rush(transactional_db: None) -> Callable[..., Any]:
    """Return `rush`, on a database whose commits other threads see."""
    from .together import rush

    return rush
