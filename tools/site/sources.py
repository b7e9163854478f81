"""The pages of source files and folders that the documents link to."""

from html import escape
from pathlib import Path

from servers.embedded import ROOT
from tools.site import pages

PICTURE_SUFFIX = ".webp"
#: Folders of code that readers copy. Their files are shown whole, and each folder has a page that
#: lists its files.
COPIED_FOLDERS = ("locks", "examples", "deploy", "shop/strategies", "shop/sale")
#: The lines that are shown of any other file: enough to see what it does.
MAX_LINES = 200


def is_copied(path: Path) -> bool:
    """Return whether a file or folder is code to copy."""
    return any(path.is_relative_to(ROOT / folder) for folder in COPIED_FOLDERS)


def find_address(path: Path) -> str:
    """Return the address of a file or folder within the site.

    A picture has the address of its file, and everything else the address of its page. A leading
    dot of the path is removed, because MkDocs leaves out names that begin with a dot.
    """
    name = path.relative_to(ROOT).as_posix().lstrip(".")
    if path.suffix == PICTURE_SUFFIX:
        return name
    if path.is_dir():
        return f"source/{name}/index.html"
    return f"source/{name}.html"


def stage(path: Path, staging_folder: Path) -> None:
    """Write the page of a file into the staging folder, or the pages of a folder and of its files.

    path            a file or folder of the repository
    staging_folder  the folder in which the site's pages are staged
    """
    page = staging_folder / find_address(path)
    page.parent.mkdir(parents=True, exist_ok=True)
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        body = _render_file_list(path)
        for file in list_files(path):
            stage(file, staging_folder)
    else:
        body = _render_code(name, path.read_text(), whole=is_copied(path))
    main = f'<section class="card"><h1>{escape(name)}</h1>{body}</section>'
    page.write_text(pages.render_frame(name, main, up="../" * find_address(path).count("/")))


def _render_code(name: str, text: str, *, whole: bool) -> str:
    """Return the text of a file as HTML.

    whole  whether to show the whole text. Otherwise the text is cut after MAX_LINES, with a note
           above and below that says so
    """
    lines = text.splitlines()
    note = ""
    if not whole and len(lines) > MAX_LINES:
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
    """Return the files of a folder that get a page: those that are neither empty nor hidden."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.stat().st_size and not path.name.startswith(".")
    ]


def _render_file_list(folder: Path) -> str:
    """Return as HTML a list of links to the pages of a folder's files."""
    items = [
        f'<li><a href="{escape(path.name)}.html"><code>{escape(path.name)}</code></a></li>'
        for path in list_files(folder)
    ]
    return f"<ul>{''.join(items)}</ul>"
