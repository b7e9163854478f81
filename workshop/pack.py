"""Makes a pack, a folder with everything for a room without internet.

`python -m workshop pack [FOLDER]` makes it. The pack has a copy of this checkout, and the wheels of
the requirements in shop.lock for this operating system and this version of Python. Any other system
or version needs another pack.
"""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from loadtest.stack.stack import ROOT, StackError

#: The name of a pack inside the checkout begins with this. So the next pack does not contain it.
PACK_PREFIX = "oversold-pack"
#: Files that are generated in a checkout, or belong to its user.
EXCLUDED_FILES = shutil.ignore_patterns(
    ".git",
    ".venv*",
    "var",
    "results",
    "mine",
    "mine-*",
    ".env",
    "__pycache__",
    "*_cache",
    f"{PACK_PREFIX}*",
)
README = """The Oversold workshop, for {system} with Python {version}. No internet is needed.

Copy this folder to the laptop (not to a network disk), then in a terminal in it:

    cd oversold
    PIP_NO_INDEX=1 PIP_FIND_LINKS=../wheels make install
    make doctor        # its last line says READY, or what to do
    make workshop

The laptop needs Python {version}, make and a shell. If it has several Pythons, choose one by
PYTHON=python{version}. Other systems and other versions of Python need a pack of their own.
"""


def pack(folder: Path) -> str:
    """Fill a new or empty folder with everything that a workshop without internet needs.

    Return a line that describes the folder's contents.

    Raises StackError if the folder cannot be used, or the wheels cannot be downloaded.

    folder  an absolute path
    """
    if folder.exists() and any(folder.iterdir()):
        raise StackError(f"{folder} is not empty: choose another folder, or remove it")
    if folder.is_relative_to(ROOT) and not folder.name.startswith(PACK_PREFIX):
        raise StackError(f"{folder} is in the checkout that is packed: choose a folder outside it")
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "--only-binary=:all:",
            "--dest",
            str(wheels),
            "--requirement",
            str(ROOT / "tools/requirements/shop.lock"),
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if process.returncode:
        raise StackError(
            "pip could not download the wheels; its message is above. Packing needs internet"
        )
    shutil.copytree(ROOT, folder / "oversold", ignore=EXCLUDED_FILES)
    version = ".".join(platform.python_version_tuple()[:2])
    system = f"{platform.system()} {platform.machine()}"
    (folder / "README.txt").write_text(README.format(system=system, version=version))
    megabytes = sum(wheel.stat().st_size for wheel in wheels.iterdir()) // 1_000_000
    return f"{folder}: {system}, Python {version}, {megabytes} MB of wheels; see its README.txt"
