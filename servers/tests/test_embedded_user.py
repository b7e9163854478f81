"""The servers from the wheels for an ordinary user, in a deep folder."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.tests.copy_of_project import Copy, User, assert_gone


@pytest.fixture
def deep_copy() -> Iterator[Copy]:
    """A copy more than 100 characters down, owned by an ordinary user.

    For root that is `nobody`, who may read what root's Python is made of and nothing else.
    """
    with tempfile.TemporaryDirectory(prefix="oversold-") as name:
        folder = Path(name)
        temporary = folder / "t"
        temporary.mkdir()
        deep = folder / ("d" * 60) / ("e" * 60)
        prefix: list[str] = []
        if os.getuid() == 0:
            if shutil.which("setpriv") is None:
                pytest.skip("root needs setpriv (util-linux) to become an ordinary user")
            as_nobody = "setpriv --reuid nobody --regid nogroup --clear-groups"
            reading = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
            prefix = [*as_nobody.split(), *reading.split()]
        with Copy(deep, temporary=temporary, prefix=prefix) as copy:
            if prefix:
                folder.chmod(0o755)
                for path in [temporary, deep, *deep.rglob("*")]:
                    shutil.chown(path, "nobody", "nogroup")
            yield copy


def test_an_ordinary_user_in_a_deep_folder_migrates_and_sells(deep_copy: Copy) -> None:
    assert len(str(deep_copy.data)) > 100, "a Unix socket's path would not fit"
    with User(deep_copy):
        owner = deep_copy.postgres().uids().real
        assert owner != 0
        migrated = deep_copy.manage("migrate", "--verbosity", "0")
        assert (migrated.returncode, migrated.stderr) == (0, "")
        restocked = deep_copy.manage("restock", "--stock", "7")
        assert restocked.stdout == "sale 2 is open: 7 units of apple\n"
        checked = deep_copy.manage("check_stack")
        assert (checked.returncode, checked.stderr) == (0, "")
        servers = [deep_copy.postgres(), deep_copy.valkey()]
    assert_gone(*servers)


def test_somebody_elses_servers_are_refused_with_what_to_do(deep_copy: Copy) -> None:
    if os.getuid() != 0:
        pytest.skip("an ordinary user cannot make files of somebody else")
    var = deep_copy.root / "var"
    var.mkdir(mode=0o755)
    refused = deep_copy.manage("check_stack")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"{var}/lock may not be written: work as the user who made it")
