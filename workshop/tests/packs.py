"""A pack installs without internet. `make test-workshop` runs this, `make test` does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.stack.stack import StackError
from loadtest.tests.checkout import make_user_environment
from workshop.pack import pack

pytestmark = pytest.mark.xdist_group("packs")


def test_pack_is_installed_and_used_without_an_index(tmp_path: Path) -> None:
    """pack() needs internet to download the wheels. The pack can then be installed without it."""
    folder = tmp_path / "pack"
    assert "MB of wheels" in pack(folder)
    offline_pip = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "../wheels",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_CACHE_DIR": "1",
        "PYTHON": sys.executable,
    }
    assert not (folder / "oversold" / ".git").exists()
    for command in (["make", "install"], [".venv/bin/python", "-m", "workshop", "list"]):
        process = subprocess.run(
            command,
            cwd=folder / "oversold",
            env=make_user_environment() | offline_pip,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stdout
    assert "Two buyers, one unit" in process.stdout  # the last command lists the lessons


def test_pack_refuses_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StackError, match="is not empty"):
        pack(tmp_path)
