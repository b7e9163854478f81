"""`pip install ./testing` brings the package, its types, and the entry point for pytest."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1]


def build_wheel(folder: Path) -> Path:
    """Build an sdist as the release does, build a wheel from the sdist, and return the wheel.

    The environment variables of the release are set only for the sdist. The wheel takes the
    project's URLs from the sdist.
    """
    build_command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t"]
    release_variables = {"GITHUB_REPOSITORY": "owner/project", "GITHUB_REF_NAME": "v1.0.0"}
    environment = {name: value for name, value in os.environ.items() if "GITHUB" not in name}
    release_environment = {**environment, **release_variables}
    subprocess.run([*build_command, "sdist"], cwd=FOLDER, env=release_environment, check=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*build_command, "wheel"], cwd=source, env=environment, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def list_fixtures(site_folder: Path, folder: Path) -> str:
    """Return the output of `pytest --fixtures` in a folder.

    site_folder  the folder into which the package is installed
    """
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--fixtures",
            "-c",
            os.devnull,
            "--rootdir",
            str(folder),
            "-p",
            "no:cacheprovider",
            "-p",
            "no:django",
            str(folder),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site_folder)},
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


def test_wheel_has_the_plugin_its_types_and_its_entry_point(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="pip install hatchling, which builds the package")
    wheel = build_wheel(tmp_path)
    site_folder = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        files.extractall(site_folder)
        [entry_points] = [name for name in names if name.endswith("entry_points.txt")]
        assert "oversold_testing = oversold_testing.plugin" in files.read(entry_points).decode()
        [metadata_name] = [name for name in names if name.endswith("/METADATA")]
        metadata = files.read(metadata_name).decode()
    assert "Project-URL: Homepage, https://github.com/owner/project\n" in metadata
    assert "Requires-Dist: pytest-django>=4.8\n" in metadata
    assert "redis" not in metadata  # only the shop needs it, not the plugin
    # The README is shown on PyPI, where a relative link leads nowhere.
    links = re.findall(r"\]\(([^)]*)\)", metadata)
    assert not [link for link in links if ":" not in link]
    assert [name for name in names if name.endswith("/licenses/LICENSE")]
    assert "oversold_testing/py.typed" in names
    assert not [name for name in names if "/tests/" in name or "package_metadata" in name]
    # pytest finds the fixtures through the entry point.
    assert "Return `interleave`, on a database whose commits" in list_fixtures(
        site_folder, folder=tmp_path
    )
    # Django is not imported before a test uses a fixture.
    is_django_imported = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, oversold_testing.plugin; print('django' in sys.modules)",
        ],
        cwd=site_folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert is_django_imported == "False\n"
