"""The demo is installed, routed and imported only with SHOP_DEMO=1."""

import json
import os
from typing import Any

from shop.tests.node import run_python

#: Loads what a server of the shop loads, and prints the parts of the demo that it has loaded. The
#: arguments are paths of URLs; those that the server serves are printed.
INSPECTION = """
import json, sys
import shop.wsgi, shop.asgi
from django.conf import settings
from django.urls import Resolver404, resolve
from shop.strategies import STRATEGIES

def is_routed(path):
    try:
        return bool(resolve(path))
    except Resolver404:
        return False

print(json.dumps({
    "paths": [path for path in sys.argv[1:] if is_routed(path)],
    "modules": [name for name in sys.modules if name.partition(".")[0] == "demo"],
    "apps": [app for app in settings.INSTALLED_APPS if app.startswith("demo")],
    "middleware": [name for name in settings.MIDDLEWARE if name.startswith("demo")],
    "own_strategies": [name for name in STRATEGIES if name == "mine"],
}))
"""
DEMO_PATHS = [
    "/",
    "/state",
    "/history",
    "/rush",
    "/rush/stop",
    "/steps",
    "/steps/step",
    "/strategies/redis/code",
    "/sales/1/curve",
]
SHOP_PATHS = ["/buy", "/sales/1", "/healthz"]


def inspect_node(folder: object, *, is_demo: bool) -> dict[str, Any]:
    """Return the parts of the demo that a new process of the shop has loaded.

    The demo's settings are always set. Without SHOP_DEMO they must have no effect.

    is_demo  the value of SHOP_DEMO
    """
    environment = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
    completed = run_python(
        "-c",
        INSPECTION,
        *DEMO_PATHS,
        *SHOP_PATHS,
        **environment,
        SHOP_DEMO=str(int(is_demo)),
        SHOP_DEMO_HISTORY=str(folder),
        SHOP_DEMO_PAUSES="released=10",
        SHOP_DEMO_STRATEGIES=f"mine={folder}/ex05.py",
    )
    assert completed.returncode == 0, completed.stderr
    inspection: dict[str, Any] = json.loads(completed.stdout)
    return inspection


def test_demo_is_neither_imported_nor_routed_in_production(tmp_path: object) -> None:
    """Without SHOP_DEMO=1 a process has only the shop's own URLs, and nothing of the demo."""
    inspection = inspect_node(tmp_path, is_demo=False)
    assert inspection == {
        "paths": SHOP_PATHS,
        "modules": [],
        "apps": [],
        "middleware": [],
        "own_strategies": [],
    }


def test_demo_is_installed_and_routed(tmp_path: object) -> None:
    """With SHOP_DEMO=1 a process has the demo's URLs, modules and middleware, and `mine`.

    `mine` is a strategy from a file of the user (SHOP_DEMO_STRATEGIES).
    """
    inspection = inspect_node(tmp_path, is_demo=True)
    assert inspection["paths"] == [*DEMO_PATHS, *SHOP_PATHS]
    assert {"demo.urls", "demo.views", "demo.hooks"} <= set(inspection["modules"])
    assert inspection["apps"] == ["demo"]
    assert inspection["middleware"] == ["demo.hooks.TraceMiddleware"]
    assert inspection["own_strategies"] == ["mine"]
