"""The compose files, read without Docker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


class Loader(yaml.SafeLoader):
    """Ignores Compose's own tags: a tagged value counts as the value."""


def _list(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
    return list(loader.construct_sequence(node))


Loader.add_constructor("!override", _list)
Loader.add_constructor("!reset", lambda loader, node: None)


def compose(name: str) -> dict[str, Any]:
    return dict(yaml.load((ROOT / name).read_text(), Loader))


STACK = compose("docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
PRODUCTION: dict[str, Any] = compose("docker-compose.production.yml")["services"]


def defaults(text: str) -> str:
    """`text` as it is when no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def environment(service: Mapping[str, Any]) -> Mapping[str, str]:
    given: Mapping[str, str] = service.get("environment", {})
    return given
