"""python -m tools.sbom [FILE]: what an installation of the shop contains, as CycloneDX JSON.

Installs requirements.lock into a new environment, describes that, and adds what the repository
brings along in assets/vendor. Ends with status 1 where a package that is locked for
this Python and system is missing in the result. Default: var/sbom.cdx.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"

Document = dict[str, Any]

#: What the repository brings along, by its folder in assets/vendor.
VENDORED: dict[str, Document] = {
    "echarts": {
        "type": "library",
        "bom-ref": "pkg:npm/echarts@6.1.0",
        "purl": "pkg:npm/echarts@6.1.0",
        "name": "echarts",
        "version": "6.1.0",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
}


def describe() -> Document:
    """The bill of materials of a new environment with the locked packages and nothing else."""
    here = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        python = f"{folder}/bin/python"
        subprocess.run(
            [
                *(here / "uv", "--no-config", "pip", "install", "--quiet", "--require-hashes"),
                *("--python", python, "--requirements", LOCK),
            ],
            check=True,
        )
        described = subprocess.run(
            [
                *(here / "cyclonedx-py", "environment", python),
                *("--pyproject", ROOT / "pyproject.toml", "--output-reproducible"),
                *("--spec-version", "1.6", "--output-format", "JSON"),
            ],
            check=True,
            capture_output=True,
        )
    document: Document = json.loads(described.stdout)
    return document


def missing(lock: str, document: Document) -> list[str]:
    """The packages locked for this Python and system that the document does not have."""
    there = {
        (canonicalize_name(component["name"]), component.get("version"))
        for component in document["components"]
    }
    lines = [line.split("\\")[0] for line in lock.splitlines() if line[:1].isalnum()]
    wanted = [
        requirement
        for requirement in map(Requirement, lines)
        if requirement.marker is None or requirement.marker.evaluate()
    ]
    return [
        str(requirement)
        for requirement in wanted
        if (canonicalize_name(requirement.name), str(requirement.specifier)[2:]) not in there
    ]


def invalid(text: str) -> str:
    """Why the text is no CycloneDX 1.6, or nothing."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) or "")


def main(target: Path) -> None:
    document = describe()
    document["components"] += VENDORED.values()
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if absent := missing(LOCK.read_text(), document):
        sys.exit(f"not in the bill of materials: {', '.join(absent)}")
    if why := invalid(text):
        sys.exit(f"not valid CycloneDX: {why}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    print(f"{target}: {len(document['components'])} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "var/sbom.cdx.json")
