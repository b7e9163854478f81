"""Start a shop of this folder, and rush it.

    python -m examples.targets fastapi             start it; Ctrl-C stops it
    python -m examples.targets fastapi --rush      start it, rush it until it oversells, stop it
    python -m examples.targets fastapi --repaired --rush
    python -m examples.targets oscar --rush

What a shop needs is installed into var/targets/, a virtual environment for each.
"""

import argparse
import subprocess
import sys
import time
from contextlib import suppress

from examples.targets.shops import SHOPS, NotInstalled
from loadtest.commands.arguments import EXPECTED
from servers import embedded
from servers.errors import EmbeddedError, NotReady
from servers.signals import ENDING, end_on


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code of the last rush, 2 where the shop did not start."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.targets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shop", choices=SHOPS)
    parser.add_argument("--rush", action="store_true", help="rush it, then end")
    parser.add_argument("--repaired", action="store_true", help="with the repair of README.md")
    parser.add_argument("--expect", choices=EXPECTED, default="exact", help="exit with 0 for this")
    given = parser.parse_args(arguments)
    end_on(*ENDING)
    shop = SHOPS[given.shop]
    try:
        with shop.running(repaired=given.repaired) as url:
            command = [*shop.rush_command(url), "--expect", given.expect]
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
