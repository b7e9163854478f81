"""Servers on this machine are asked directly, whatever proxy the environment names."""

from __future__ import annotations

import os

LOOPBACK = ("127.0.0.1", "localhost")


def ask_loopback_directly() -> None:
    """Add this machine to no_proxy, for this process and those that it starts from now on.

    With http_proxy but without no_proxy, requests to 127.0.0.1 would go to that proxy.
    """
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [name.strip() for name in known.split(",") if name.strip()]
    if "*" not in names:
        names += [name for name in LOOPBACK if name not in names]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(names)
