"""The API reference: a page for each published package, filled by mkdocstrings from docstrings."""

from importlib import import_module
from pathlib import Path

#: The published packages, each with the title of its page.
TITLES = {
    "locks": "API of the locks",
    "testing": "API of the pytest plugin",
}
#: The classes that come first. OneFileLock is not in locks.__all__: it is imported from its module.
FIRST_OF_LOCKS = [
    "locks.one_file.OneFileLock",
    "locks.redis_lock.RedisLock",
    "locks.aio.redis_lock.AsyncRedisLock",
]


def list_titles_by_address() -> dict[str, str]:
    """Return the title of each page, by the path of its Markdown file in the staged folder."""
    return {f"api/{name}.md": title for name, title in TITLES.items()}


def stage(folder: Path) -> None:
    """Write the Markdown of each page into the staged folder."""
    (folder / "api").mkdir()
    for name, title in TITLES.items():
        (folder / "api" / f"{name}.md").write_text(_make_page(name, title))


def _make_page(package_name: str, title: str) -> str:
    """Return the Markdown of a package's page.

    mkdocstrings replaces each line `::: NAME` by the description of the object with this name.
    """
    names = list_qualified_names(package_name)
    if package_name == "locks":
        names = list(dict.fromkeys(FIRST_OF_LOCKS + names))
    directives = [f"::: {name}" for name in names]
    return "\n\n".join([f"# {title}"] + directives)


def list_qualified_names(package_name: str) -> list[str]:
    """Return each public object of a package as `MODULE.NAME`, with the module that defines it.

    mkdocstrings does not run the code, and the package imports some names lazily. So mkdocstrings
    would not find their modules itself.
    """
    package = import_module(package_name)
    return [f"{getattr(package, name).__module__}.{name}" for name in package.__all__]
