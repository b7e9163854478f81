"""Start a shop of this folder, and rush it.

    python -m examples.targets fastapi             start it; Ctrl-C stops it
    python -m examples.targets fastapi --rush 3    start it, rush it three times, stop it
    python -m examples.targets fastapi --repaired --rush 3
    python -m examples.targets oscar --rush 3
    python -m examples.targets pretix --rush 3

What a shop needs is installed into var/targets/, a virtual environment for each.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from contextlib import suppress

from examples.targets.shop import ExampleShop, NotInstalled
from loadtest.commands.arguments import EXPECTED
from servers import embedded
from servers.errors import EmbeddedError, NotReady
from servers.signals import ENDING, end_on

NAMES = ("fastapi", "oscar", "pretix")
VARIANTS = {
    "repaired": "fastapi, oscar: with the repair that README.md shows",
    "unlocked": "pretix: without its locks, by its own switch for tests",
}


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code of the last rush, 2 where the shop did not start."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.targets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shop", choices=NAMES)
    parser.add_argument(
        "--rush", type=int, default=0, metavar="N", help="rush it N times, then end"
    )
    parser.add_argument("--expect", choices=EXPECTED, default="exact", help="exit with 0 for this")
    variant = parser.add_mutually_exclusive_group()
    for name, shown in VARIANTS.items():
        variant.add_argument(
            f"--{name}", action="store_const", const=name, dest="variant", help=shown
        )
    given = parser.parse_args(arguments)
    end_on(*ENDING)
    module = importlib.import_module(f"examples.targets.launch_{given.shop}")
    shop: ExampleShop = module.SHOP
    if given.variant and given.variant not in shop.variants:
        parser.error(f"{given.shop} cannot be started {given.variant}: leave --{given.variant} out")
    try:
        with shop.running(given.variant or "") as url:
            command = [*shop.rush_command(url), "--repeat", str(given.rush or 1)]
            command += ["--expect", given.expect]
            if given.rush:
                return subprocess.run([sys.executable, *command], check=False).returncode
            print(f"{given.shop} listens at {url}. Rush it from another terminal:")
            print(f"  .venv/bin/python {' '.join(command)}\nCtrl-C stops it", flush=True)
            while True:
                time.sleep(3600)
    except (NotInstalled, NotReady, EmbeddedError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        with suppress(KeyboardInterrupt):
            embedded.detach()


if __name__ == "__main__":
    sys.exit(main())
