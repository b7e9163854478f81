"""The API reference: a page for each published package.

mkdocstrings writes the text of the pages from the docstrings of the packages.
"""

from importlib import import_module
from pathlib import Path

#: Published package -> the title of its page.
TITLES = {
    "locks": "API of the locks",
    "testing": "API of the pytest plugin",
}
#: The classes that come first on the page of `locks`. OneFileLock is not in locks.__all__, because
#: users import it from its module.
FIRST_CLASSES_OF_LOCKS = [
    "locks.one_file.OneFileLock",
    "locks.redis_lock.RedisLock",
    "locks.aio.redis_lock.AsyncRedisLock",
]


def list_titles_by_address() -> dict[str, str]:
    """Return the path of each page's Markdown file in the staging folder, with the page's title."""
    return {f"api/{name}.md": title for name, title in TITLES.items()}


def stage(folder: Path) -> None:
    """Write the Markdown file of each page into the staging folder."""
    (folder / "api").mkdir()
    for name, title in TITLES.items():
        (folder / "api" / f"{name}.md").write_text(_make_page(name, title))


def _make_page(package_name: str, title: str) -> str:
    """Return the Markdown of a package's page.

    mkdocstrings replaces each line `::: NAME` by the documentation of the object with this name.
    """
    names = list_qualified_names(package_name)
    if package_name == "locks":
        names = list(dict.fromkeys(FIRST_CLASSES_OF_LOCKS + names))
    lines_to_replace = [f"::: {name}" for name in names]
    return "\n\n".join([f"# {title}"] + lines_to_replace)


def list_qualified_names(package_name: str) -> list[str]:
    """Return the qualified name of each public object of a package: the defining module and a name.

    mkdocstrings needs the modules. It could not find all of them itself, because it does not run
    the code, and the package imports some of its objects lazily.
    """
    package = import_module(package_name)
    return [f"{getattr(package, name).__module__}.{name}" for name in package.__all__]
