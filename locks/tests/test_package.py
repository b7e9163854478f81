"""Tests of the package as users install it, or copy its folder under another name."""

import inspect
import re
import shutil
import sys
import typing
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

import pytest
import redis

from servers import valkey

from ..testing.server import Server, find_server_binary
from .waiting import LOCKS_PACKAGE, run_program

PACKAGE_FOLDER = Path(__file__).parents[1]
PROJECT_FILE = PACKAGE_FOLDER.parent / "pyproject.toml"

#: A program with a wrong last line. mypy reports it only if the package contains its types.
TYPED_PROGRAM = """
from oversold_locks import Lease, RedisLock
import redis
with RedisLock(redis.Redis(), "x", ttl=1).hold(wait=1) as lease:
    reveal_type(lease)
    lease.check("too much")
"""


#: The environment variables in which a GitHub workflow has the repository and the tag.
RELEASE_ENVIRONMENT = {"GITHUB_REPOSITORY": "owner/project", "GITHUB_REF_NAME": "v1.0.0"}


def check_and_read_metadata(wheel: Path) -> Message:
    """Check that the wheel has no entry points, and return its METADATA."""
    with zipfile.ZipFile(wheel) as files:
        assert not [name for name in files.namelist() if name.endswith("entry_points.txt")]
        (name,) = [name for name in files.namelist() if name.endswith("/METADATA")]
        return message_from_bytes(files.read(name))


def repack_as_wheel(name: str, folder: Path) -> None:
    """Make a wheel from an installed distribution, so that pip can install it without a network."""
    package = distribution(name)
    with zipfile.ZipFile(folder / f"{name}-{package.version}-py3-none-any.whl", "w") as wheel:
        for file in package.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                wheel.write(str(package.locate_file(file)), str(file))


@pytest.mark.skipif(
    not PROJECT_FILE.exists(), reason="a copied folder; its package is built elsewhere"
)
def test_wheel_installs_only_the_locks_with_their_types(server: Server, tmp_path: Path) -> None:
    """Build the wheel, install it in an empty environment, and check its page and its types.

    The page on PyPI has absolute links, and its examples run with the installed package.
    """
    pytest.importorskip("hatchling", reason="pip install hatchling, which builds the package")
    wheel_folder = tmp_path / "wheels"
    wheel_folder.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    repack_as_wheel("redis", wheel_folder)
    sdist_folder = tmp_path / "source"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", sdist_folder]
    run_program(*build, folder=PROJECT_FILE.parent, env=RELEASE_ENVIRONMENT)
    sdist = next(sdist_folder.iterdir())
    wheel_options = ["--no-index", "--no-build-isolation", "--no-deps", "-w", str(wheel_folder)]
    # Without RELEASE_ENVIRONMENT: the wheel takes the links from the metadata of the sdist.
    no_repository = {"PYTHONPATH": "", "GITHUB_REPOSITORY": ""}
    run_program(*pip, "wheel", *wheel_options, sdist, folder=tmp_path, env=no_repository)
    new_environment = tmp_path / "environment"
    run_program(sys.executable, "-m", "venv", "--without-pip", new_environment, folder=tmp_path)
    python = new_environment / "bin/python"
    install_options = ["--no-index", "--find-links", str(wheel_folder), "oversold-locks"]
    run_program(*pip, "--python", python, "install", *install_options, folder=tmp_path)

    packages = run_program(*pip, "--python", python, "list", "--format=freeze", folder=tmp_path)
    assert {line.partition("==")[0] for line in packages.split()} == {"oversold-locks", "redis"}
    (wheel,) = wheel_folder.glob("oversold_locks-*.whl")
    metadata = check_and_read_metadata(wheel)
    page = str(metadata.get_payload())
    assert "from locks" not in page
    assert re.findall(r"\]\((?!https://)[^)]*\)", page) == []
    assert "(https://github.com/owner/project/blob/v1.0.0/examples/no_lock.py)" in page
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert urls["Homepage"] == "https://github.com/owner/project"
    assert set(urls) == {"Changelog", "Documentation", "Homepage", "Issues"}
    program = make_readme_program(server, "oversold_locks", page)
    assert "released" in run_program(python, "-I", "-W", "error", "-c", program, folder=tmp_path)
    (tmp_path / "typed.py").write_text(TYPED_PROGRAM)
    pytest.importorskip("mypy", reason="pip install mypy, which reads the types")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
    mypy_output = run_program(*mypy, "typed.py", folder=tmp_path, exit_code=1)
    assert 'Revealed type is "oversold_locks.lease.Lease"' in mypy_output
    assert mypy_output.count(": error:") == mypy_output.count("Too many arguments") == 1


@pytest.mark.parametrize("name", ["anyname", "myapp.locks"])
def test_copied_folder_works_with_redis_py_alone(server: Server, tmp_path: Path, name: str) -> None:
    """The README's examples run with a copy of the folder and redis-py, without other packages.

    Some tests in the copy run, too. They also need pytest and the package `servers`.
    """
    folder = tmp_path.joinpath(*name.split("."))
    shutil.copytree(PACKAGE_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__", "bench"))
    for parent in folder.relative_to(tmp_path).parents[:-1]:
        (tmp_path / parent / "__init__.py").touch()
    (tmp_path / "redis").symlink_to(Path(redis.__file__).parent)
    program = make_readme_program(server, name)
    env = {"PYTHONPATH": str(tmp_path)}
    output = run_program(
        sys.executable, "-S", "-W", "error", "-c", program, folder=tmp_path, env=env
    )
    assert "released" in output

    tools = tmp_path / "tools"
    tools.mkdir()
    for module in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py"):
        (tools / module).symlink_to(str(distribution("pytest").locate_file(module)))
    (tools / "servers").symlink_to(Path(valkey.__file__).parent)
    env = {"PYTHONPATH": f"{tmp_path}:{tools}", "LOCKS_TEST_SERVER": find_server_binary()}
    tests = [folder / f"tests/test_{subject}.py" for subject in ("queue", "lease")]
    options = ["-q", "-p", "no:cacheprovider", "-k", "killed or paused"]
    run_program(sys.executable, "-S", "-m", "pytest", *options, *tests, folder=folder, env=env)


def make_readme_program(server: Server, name: str, readme: str | None = None) -> str:
    """Return a program that consists of the examples in README.md and two other pages.

    Args:
        server: The server that the program uses.
        name: The package from which the program imports.
        readme: A text in place of README.md. None: README.md.
    """
    pages = ("ASYNCIO.md", "FROM_REDIS_PY.md")
    text = readme or (PACKAGE_FOLDER / "README.md").read_text()
    text += "".join((PACKAGE_FOLDER / page).read_text() for page in pages)
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = "\n".join(examples)
    for client in ("redis.Redis(", "redis.asyncio.Redis("):
        program = program.replace(client, f"{client}port={server.port}, ")
    return program.replace("from locks", f"from {name}")


def test_every_pitfall_has_a_test() -> None:
    """Each row of the table of pitfalls in tests/README.md lists tests that exist.

    A row may also have the word "shop" instead, if the tests of the shop cover the pitfall.
    """
    rows = re.findall(
        r"^\| (\d+) \|.*\| (.*) \|$", (PACKAGE_FOLDER / "tests/README.md").read_text(), re.M
    )
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    defined_tests = set()
    for file in (PACKAGE_FOLDER / "tests").rglob("test_*.py"):
        defined_tests |= set(re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.M))
    for number, tests in rows:
        test_names = re.findall(r"`(test_\w+)`", tests)
        assert test_names or tests == "shop", number
        assert set(test_names) <= defined_tests, number


def test_locks_import_only_redis_py_or_valkey_py() -> None:
    """The package imports no other library, besides the standard library."""
    for file in [*PACKAGE_FOLDER.glob("*.py"), *PACKAGE_FOLDER.glob("aio/*.py")]:
        imported_modules = re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.M)
        assert set(imported_modules) <= sys.stdlib_module_names | {"redis", "valkey"}, file


def test_public_type_hints_can_be_resolved() -> None:
    """Each annotation of a public method refers to a name that exists at run time."""
    package = import_module(LOCKS_PACKAGE)
    for public_class in (getattr(package, class_name) for class_name in package.__all__):
        for name, function in inspect.getmembers(public_class, inspect.isfunction):
            if not name.startswith("_") or name == "__init__":
                typing.get_type_hints(function)


def test_lock_with_callbacks_has_loaded_its_hooks() -> None:
    """A lock that has callbacks imports the module `hooks` when it is made, not at a loss.

    A loss may be noticed in a forked child. If another thread of the parent was importing a module
    at the fork, an import in the child never ends.
    """
    program = f"""
import sys, redis
from {LOCKS_PACKAGE} import Metrics, RedisLock
RedisLock(redis.Redis(), "without hooks", ttl=1)
assert "{LOCKS_PACKAGE}.hooks" not in sys.modules
RedisLock(redis.Redis(), "with hooks", ttl=1, metrics=Metrics())
assert "{LOCKS_PACKAGE}.hooks" in sys.modules
"""
    run_program(sys.executable, "-c", program)
