"""Shops that the rush is run against, each with its target: README.md."""

from __future__ import annotations
