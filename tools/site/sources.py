"""The pages of source files and folders that the documents link to."""

from html import escape
from pathlib import Path

from servers.embedded import ROOT
from tools.site import pages

PICTURE_SUFFIX = ".webp"
#: Folders of code that readers of the site may want to copy into their own project. Their files are
#: shown whole, and each folder has a page that lists its files.
COPIED_FOLDERS = ("locks", "examples", "deploy", "shop/strategies", "shop/sale")
#: The number of lines that are shown of a file in another folder: enough to see what it does.
MAX_LINES = 200


def is_copied(path: Path) -> bool:
    """Return whether a file or folder is in one of COPIED_FOLDERS."""
    return any(path.is_relative_to(ROOT / folder) for folder in COPIED_FOLDERS)


def find_address(path: Path) -> str:
    """Return the address within the site at which a file or folder of the repository is shown.

    For a picture this is the address of its file, otherwise the address of a page. A leading dot of
    the path is removed, because MkDocs ignores files whose names begin with a dot.
    """
    name = path.relative_to(ROOT).as_posix().lstrip(".")
    if path.suffix == PICTURE_SUFFIX:
        return name
    if path.is_dir():
        return f"source/{name}/index.html"
    return f"source/{name}.html"


def stage(path: Path, staging_folder: Path) -> None:
    """Write the page of a file into the staging folder; for a folder, also those of its files.

    path            a file or folder of the repository
    staging_folder  the folder from which MkDocs makes the site
    """
    address = find_address(path)
    page = staging_folder / address
    page.parent.mkdir(parents=True, exist_ok=True)
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        body = _render_file_list(path)
        for file in list_files(path):
            stage(file, staging_folder)
    else:
        body = _render_code(name, path.read_text(), show_all=is_copied(path))
    content = f'<section class="card"><h1>{escape(name)}</h1>{body}</section>'
    page.write_text(pages.render_page(name, content, path_to_root="../" * address.count("/")))


def _render_code(name: str, text: str, *, show_all: bool) -> str:
    """Return the text of a file as HTML.

    show_all  whether to show all lines. Otherwise only the first MAX_LINES are shown, and a note
              above and below them says so
    """
    lines = text.splitlines()
    note = ""
    if not show_all and len(lines) > MAX_LINES:
        text = "\n".join(lines[:MAX_LINES])
        note = (
            f'<p class="cut">The first {MAX_LINES} of {len(lines)} lines; the rest is in '
            f"<code>{escape(name)}</code> of a checkout.</p>"
        )
    return (
        f'{note}<div class="scroll" tabindex="0" role="region" aria-label="Text of the file">'
        f"<pre>{escape(text, quote=False)}</pre></div>{note}"
    )


def list_files(folder: Path) -> list[Path]:
    """Return the files of a folder for which there is a page. Empty and hidden files have none."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.stat().st_size and not path.name.startswith(".")
    ]


def _render_file_list(folder: Path) -> str:
    """Return a list of links to the pages of a folder's files, as HTML."""
    items = [
        f'<li><a href="{escape(path.name)}.html"><code>{escape(path.name)}</code></a></li>'
        for path in list_files(folder)
    ]
    return f"<ul>{''.join(items)}</ul>"
