"""python -m tools.audit [--required]: the locked packages against the OSV database.

Ends with status 1 where a version that is locked for this Python and system has a known
vulnerability. Where the database is not reachable nothing was audited: it says so and ends with 0,
or with --required (or AUDIT_REQUIRED=1) with 2.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OSV = "https://api.osv.dev/v1/query"
LOCKS = ("requirements-dev.lock", "requirements-tools.lock")
TIMEOUT = 15  # seconds for one answer of the database


def reachable(url: str) -> str:
    """Empty where the database answers a question, otherwise why it does not."""
    question = {"package": {"name": "django", "ecosystem": "PyPI"}, "version": "5.2"}
    request = urllib.request.Request(
        url, json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            json.load(answer)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return ""


def audit(lock: Path, url: str) -> list[str]:
    """One line for each known vulnerability of what `lock` names.

    Raises RuntimeError where a package was not asked for: that is no clean audit.
    """
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pip_audit", "--vulnerability-service", "osv"),
            *("--osv-url", url, "--timeout", str(TIMEOUT), "--progress-spinner", "off"),
            *("--format", "json", "--disable-pip", "--require-hashes", "--requirement", str(lock)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        packages = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        raise RuntimeError(f"pip-audit failed on {lock.name}:\n{result.stderr[-2000:]}") from None
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped or not packages:
        raise RuntimeError(f"not audited in {lock.name}: {', '.join(skipped) or 'everything'}")
    print(f"{lock.name}: {len(packages)} packages audited", flush=True)
    return [
        f"{package['name']} {package['version']}: {known['id']}, "
        f"fixed in {', '.join(known['fix_versions']) or 'no version yet'}"
        for package in packages
        for known in package["vulns"]
    ]


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(prog="python -m tools.audit")
    options.add_argument("--required", action="store_true", help="2 where it is not reachable")
    options.add_argument("--osv-url", default=OSV, metavar="URL", help="the database's query URL")
    options.add_argument("locks", nargs="*", type=Path, default=[ROOT / name for name in LOCKS])
    given = options.parse_args(arguments)
    if why := reachable(given.osv_url):
        print(
            f"NOT AUDITED: the vulnerability database is not reachable ({why}). "
            "Nothing is known of the locked packages; run make audit where it is.",
            file=sys.stderr,
        )
        return 2 if given.required or os.environ.get("AUDIT_REQUIRED") == "1" else 0
    try:
        found = [line for lock in given.locks for line in audit(lock, given.osv_url)]
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print("Take a fixed version: make lock ARGS=--upgrade", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
