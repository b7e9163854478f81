"""Secrets from the environment."""

from __future__ import annotations

import os
from pathlib import Path


def secret(name: str) -> str:
    """The environment variable `name`, or what is in the file that `name`_FILE names; empty when
    neither is set. Raises OSError when the file cannot be read."""
    if path := os.environ.get(f"{name}_FILE"):
        return Path(path).read_text().strip()
    return os.environ.get(name, "")
