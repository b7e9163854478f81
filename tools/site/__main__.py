"""python -m tools.site: write the static site to var/site/.

Any web server can serve it, and a browser can open it from the folder. It is made from the
recordings in recorded/, the documents and the code. The command runs in .venv, and starts MkDocs
from .venv-tools.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from servers.embedded import ROOT
from tools.site import api_reference, documents, level_page, pages

SITE = ROOT / "var" / "site"
#: The folder with the documents and pages from which MkDocs makes the site.
STAGING_FOLDER = ROOT / "var" / "site-staged"
MKDOCS = ROOT / ".venv-tools" / "bin" / "mkdocs"
#: Size limit of the site, so that it still loads quickly over a slow connection.
MAX_BYTES = 3_000_000
#: Files that MkDocs writes and that the site does not need.
UNUSED_FILES = ("sitemap.xml", "sitemap.xml.gz", "objects.inv")


def build(site: Path = SITE, staged: Path = STAGING_FOLDER) -> Path:
    """Build the whole site in the folder `site`, and return this folder.

    An earlier content of the folders is deleted.

    staged  the folder into which the pages are written before MkDocs makes the site from them
    """
    theme = staged.with_name(f"{staged.name}-theme")  # the folder of MkDocs's template
    for folder in (site, staged, theme):
        shutil.rmtree(folder, ignore_errors=True)
    staged.mkdir(parents=True)
    theme.mkdir()
    (theme / "main.html").write_text(pages.render_document_template())
    documents.stage(staged)
    api_reference.stage(staged)
    pages.write_stylesheet(staged / "assets")
    (staged / "index.html").write_text(pages.render_step_through())
    (staged / level_page.PAGE).write_text(level_page.render_levels())
    (staged / "schedules.html").write_text(pages.render_schedules())
    (staged / "faults.html").write_text(pages.render_faults(pages.read_recorded_faults()))
    (staged / "contents.md").write_text(documents.make_contents())
    config = staged.with_suffix(".yml")
    config.write_text(documents.make_config(staged, site, theme))
    command = [str(MKDOCS), "build", "--strict", "--quiet", "--config-file", str(config)]
    subprocess.run(command, check=True)
    index = json.loads((site / "search" / "search_index.json").read_text())
    (site / "search.html").write_text(pages.render_search(index))
    shutil.rmtree(site / "search")  # search.html contains the index
    for name in UNUSED_FILES:
        (site / name).unlink(missing_ok=True)
    return site


def measure_size(site: Path) -> int:
    """Return the size of all files of the site in bytes."""
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file())


def main() -> int:
    """Build the site, and return the exit code: 1 if the site is larger than MAX_BYTES, else 0."""
    site = build()
    size = measure_size(site)
    print(f"{site}: {size / 1e6:.2f} MB. Open {site / 'index.html'}")
    if size > MAX_BYTES:
        print(f"the site is larger than {MAX_BYTES / 1e6:.0f} MB: make it smaller", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
