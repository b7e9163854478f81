"""make sbom: completes the bill of materials, and writes the table of docs/licences.md from it.

cyclonedx-py has described an installation of the lock in var/sbom.cdx.json. What it cannot see is
what the repository brings along in shop/demo/static/assets/vendor.
"""

import json
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
BILL = ROOT / "var/sbom.cdx.json"
PAGE = ROOT / "docs/licences.md"
BEGIN = "<!-- packages: begin (make sbom writes this) -->\n"
END = "<!-- packages: end -->"

VENDORED = {
    "type": "library",
    "bom-ref": "pkg:npm/echarts@6.1.0",
    "purl": "pkg:npm/echarts@6.1.0",
    "name": "echarts",
    "version": "6.1.0",
    "licenses": [{"license": {"id": "Apache-2.0"}}],
}

#: A classifier that is no SPDX id, as people write it.
KNOWN_AS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD (which one: see its file)",
    "Zope Public License": "ZPL 2.1",
}


def licence(component: dict[str, Any]) -> str:
    """The first licence that a package states: an SPDX expression, its id, or its classifier."""
    stated = component["licenses"][0]
    named = stated.get("license", {})
    found = stated.get("expression") or named.get("id") or named["name"]
    name = str(found).removeprefix("License :: OSI Approved :: ")
    return KNOWN_AS.get(name, name)


def main() -> None:
    bill = json.loads(BILL.read_text())
    rows = sorted((canonicalize_name(each["name"]), licence(each)) for each in bill["components"])
    bill["components"].append(VENDORED)
    BILL.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n")
    before, rest = PAGE.read_text().split(BEGIN)
    table = "".join(f"| {name} | {stated} |\n" for name, stated in rows)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}| package | licence |\n|---|---|\n{table}{END}{after}")


if __name__ == "__main__":
    main()
