"""The environment of what a stack starts: this process's own, without what would spoil a demo."""

from __future__ import annotations

import os

#: What a user's own environment or .env may say of a real shop, and would spoil a demo.
PLAIN = {
    "DEBUG": "0",
    "HTTPS": "0",
    "ALLOWED_HOSTS": "localhost,127.0.0.1",
    "SHOP_BEHIND_PROXY": "0",
    "BUY_RATE_LIMIT": "",
    "GUNICORN_CMD_ARGS": "",
    "PYTHONUTF8": "1",
}


#: Of this project's own, not Locust's.
KEPT = {"LOCUST_ALLOWED_HOSTS"}


def inherited() -> dict[str, str]:
    """This process's environment for those that it starts in ROOT.

    Without the options of a Locust of the user's own, but for who may open its web UI, and without
    PYTHONSAFEPATH, which would hide our packages from `python -m`.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not (name.startswith("LOCUST_") or name == "PYTHONSAFEPATH")
    }
