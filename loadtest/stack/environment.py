"""The environment of what a stack starts: this process's own, without what would spoil a demo."""

from __future__ import annotations

import os

#: Settings of a real shop in the user's environment or .env that would spoil a demo.
PLAIN = {
    "DEBUG": "0",
    "HTTPS": "0",
    "ALLOWED_HOSTS": "localhost,127.0.0.1",
    "SHOP_BEHIND_PROXY": "0",
    "BUY_RATE_LIMIT": "",
    "SHOP_MAX_PURCHASES": "0",
    "SHOP_MAX_WAITING": "0",
    "GUNICORN_CMD_ARGS": "",
    "PYTHONUTF8": "1",
}


#: Of this project's own, not Locust's.
KEPT = {"LOCUST_ALLOWED_HOSTS"}


def inherited() -> dict[str, str]:
    """This process's environment for those that it starts in ROOT.

    Without the user's own Locust options (except LOCUST_ALLOWED_HOSTS), and without PYTHONSAFEPATH,
    which would hide our packages from `python -m`.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not (name.startswith("LOCUST_") or name == "PYTHONSAFEPATH")
    }
