"""Completes the bill of materials for `make sbom`, and writes its licences to docs/licences.md.

`make sbom` first runs cyclonedx-py, which writes a bill of the installed packages to
var/sbom.cdx.json. Then this program adds ECharts to the bill. ECharts is not an installed package,
because its code is in the repository.
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

#: The entry of ECharts in the bill. Its code is in demo/static/assets/vendor.
ECHARTS = {
    "type": "library",
    "bom-ref": "pkg:npm/echarts@6.1.0",
    "purl": "pkg:npm/echarts@6.1.0",
    "name": "echarts",
    "version": "6.1.0",
    "licenses": [{"license": {"id": "Apache-2.0"}}],
}

#: Last part of a licence's classifier, as on the Python Package Index -> the name that the table
#: shows instead.
LICENCE_NAMES = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD (which one: see its file)",
    "Zope Public License": "ZPL 2.1",
}


def find_licence(component: dict[str, Any]) -> str:
    """Return the name that the table shows for the first licence of a package.

    The bill of materials has the licence as an SPDX expression, as an id, or as a classifier.

    component  the entry of the package in the bill of materials
    """
    first_licence = component["licenses"][0]
    details = first_licence.get("license", {})
    licence = first_licence.get("expression") or details.get("id") or details["name"]
    name = str(licence).removeprefix("License :: OSI Approved :: ")
    return LICENCE_NAMES.get(name, name)


def main() -> None:
    """Add ECharts to the bill of materials, and replace the table of packages in PAGE."""
    bill = json.loads(BILL.read_text())
    # The rows are made before ECHARTS is added, because ECHARTS is in another table of the page.
    rows = sorted(
        (canonicalize_name(component["name"]), find_licence(component))
        for component in bill["components"]
    )
    bill["components"].append(ECHARTS)
    BILL.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n")
    before, rest = PAGE.read_text().split(BEGIN)
    table = "".join(f"| {name} | {license_name} |\n" for name, license_name in rows)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}| package | licence |\n|---|---|\n{table}{END}{after}")


if __name__ == "__main__":
    main()
