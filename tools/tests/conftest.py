"""The load test's fixtures for the tests of tools that run it."""

from __future__ import annotations

from loadtest.tests.conftest import clone

__all__ = ["clone"]
