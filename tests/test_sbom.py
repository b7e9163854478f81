"""make sbom: its check for completeness, and what the repository itself brings along.

`.ci/run` makes one for real, which installs the lock.
"""

from __future__ import annotations

from tests.locked import ROOT
from tools.sbom import VENDORED, Document, missing

LOCK = """\
# a comment
Django==5.2.19 \\
    --hash=sha256:00
gevent==25.5.1 ; python_full_version < '3.12' and sys_platform == 'win32' \\
    --hash=sha256:00
zope-event==6.2 \\
    --hash=sha256:00
"""


def document(*components: tuple[str, str]) -> Document:
    return {"components": [{"name": name, "version": version} for name, version in components]}


def test_a_locked_package_that_is_absent_or_of_another_version_is_missing() -> None:
    assert missing(LOCK, document(("django", "5.2.18"))) == ["Django==5.2.19", "zope-event==6.2"]


def test_a_package_that_another_system_needs_is_not_missing() -> None:
    assert missing(LOCK, document(("Django", "5.2.19"), ("zope.event", "6.2"))) == []


def test_every_vendored_folder_is_a_component_of_the_version_that_is_there() -> None:
    vendor = ROOT / "assets/vendor"
    assert {path.name for path in vendor.iterdir() if path.is_dir()} == VENDORED.keys()
    version = VENDORED["echarts"]["version"]
    assert f'version="{version}"' in (vendor / "echarts/echarts.min.js").read_text()
    assert f"ECharts {version}," in (vendor / "README.md").read_text()
