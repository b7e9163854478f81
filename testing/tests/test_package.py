"""`pip install .[testing]` brings the package, its types, and the entry point for pytest."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_has_the_plugin_its_types_and_its_entry_point(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="pip install hatchling, which builds the package")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        files.extractall(tmp_path / "installed")
        (info,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "oversold_testing = oversold_testing.plugin" in files.read(info).decode()
    assert "oversold_testing/py.typed" in names
    assert not [name for name in names if "/tests/" in name]
    # pytest finds the fixtures by the entry point; Django is not imported before a test asks.
    listed = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--fixtures", "-c", os.devnull, "--rootdir"),
            *(str(tmp_path), "-p", "no:cacheprovider", "-p", "no:django", str(tmp_path)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert "oversold_testing.interleave, on a database whose commits" in listed
    imported = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys, oversold_testing.plugin; print('django' in sys.modules)",
        ],
        cwd=tmp_path / "installed",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert imported == "False\n"
