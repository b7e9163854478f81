"""python -m tools.site: write var/site/, which any web server serves and which opens from a folder.

From recorded/, the documents and the code; needs .venv for the reports and .venv-tools for MkDocs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from servers.embedded import ROOT
from tools.site import documents, pages

SITE, STAGED = ROOT / "var" / "site", ROOT / "var" / "site-staged"
MKDOCS = ROOT / ".venv-tools" / "bin" / "mkdocs"
#: The largest site that is still opened at once over a slow line.
LIMIT = 3_000_000
#: What the theme brings and nothing here asks for.
UNUSED = (
    "**/*.map",
    "assets/javascripts/lunr",
    "assets/javascripts/workers",
    "sitemap*",
    "404.html",
)


def build(site: Path = SITE, staged: Path = STAGED) -> Path:
    """The site, from nothing. Returns its folder."""
    for folder in (site, staged):
        shutil.rmtree(folder, ignore_errors=True)
    staged.mkdir(parents=True)
    documents.stage(staged)
    pages.assets(staged / "assets")
    (staged / "index.html").write_text(pages.step_through())
    (staged / "schedules.html").write_text(pages.orders())
    (staged / "faults.html").write_text(pages.faults())
    (staged / "contents.md").write_text(documents.contents())
    config = staged.with_suffix(".yml")
    config.write_text(documents.config(staged, site))
    quietly = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [str(MKDOCS), "build", "--strict", "--quiet", "--config-file", str(config)]
    subprocess.run(command, check=True, env=quietly)
    for pattern in UNUSED:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for page in (path.with_suffix(".html") for path in staged.rglob("*.md")):
        page = site / page.relative_to(staged)
        page.write_text(pages.tidied(page.read_text()))
    return site


def size(site: Path) -> int:
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file())


def main() -> int:
    site = build()
    print(f"{site}: {size(site) / 1e6:.2f} MB; open {site / 'index.html'}")
    if size(site) > LIMIT:
        print(f"it is larger than {LIMIT / 1e6:.0f} MB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
