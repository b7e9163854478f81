"""The bundler, which makes one script of the ES modules of a page.

It is used for the pages of the report and of the project's site.
"""

import re
from pathlib import Path

import pytest

from loadtest.report import html_report
from loadtest.report.bundle import BundleError, bundle
from servers.embedded import ROOT

REPORT_PAGE = html_report.PAGE
SITE_PAGES = ROOT / "tools" / "site" / "pages"
DEMO_STATIC = ROOT / "demo" / "static"
#: The modules that pages load. No other module imports them.
ENTRIES = {
    REPORT_PAGE / "main.js",
    SITE_PAGES / "steps" / "steps.js",
    SITE_PAGES / "levels" / "levels.js",
    SITE_PAGES / "faults" / "faults.js",
    SITE_PAGES / "search" / "search.js",
    DEMO_STATIC / "demo" / "page.js",
}
#: Matches an import statement, which may have several lines. The group is the imported path.
IMPORTED_PATH = re.compile(r'^import [^;]*? from "(\.[^"]+)";$', re.MULTILINE)


def write_modules(folder: Path, **texts: str) -> Path:
    """Write JavaScript modules, given as name=text, and return the path of the first one."""
    paths = [folder / f"{name}.js" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths[0]


def test_each_module_becomes_one_function_after_its_imports(tmp_path: Path) -> None:
    """The bundle has a function for each imported module, which is called at once.

    The function returns the exports of its module. `main` and `b` both import `a`, so the bundle
    begins with `a`, and has it only once.
    """
    entry = write_modules(
        tmp_path,
        main='import { b } from "./b.js";\nimport { a, A } from "./a.js";\nb(a, A);\n',
        b='import { a } from "./a.js";\nexport async function b() {\n  a();\n}\n',
        a="const own = 1;\nexport const A = own;\nexport function a() {}\n",
    )
    assert bundle(entry) == (
        "const a_js = (() => {\nconst own = 1;\nconst A = own;\nfunction a() {}\n"
        "return { A, a };\n})();\n"
        "const b_js = (() => {\nconst { a } = a_js;\nasync function b() {\n  a();\n}\n"
        "return { b };\n})();\n"
        "const { b } = b_js;\nconst { a, A } = a_js;\nb(a, A);\n"
    )


def test_imports_from_one_file_become_one_statement(tmp_path: Path) -> None:
    entry = write_modules(
        tmp_path,
        main='import { a } from "./a.js";\nimport { b } from "./a.js";\na(b);\n',
        a="export const a = 1;\nexport const b = 2;\n",
    )
    assert bundle(entry).endswith("const { a, b } = a_js;\na(b);\n")


def test_only_lines_that_are_comments_are_removed(tmp_path: Path) -> None:
    """A line with nothing but a comment is removed. A comment in a line with code stays."""
    entry = write_modules(
        tmp_path,
        main="// Why.\n/** @type {any} */ (a).b();\n/**\n * @returns {any}\n */\n"
        "function f() {\n  // why\n  return g(); // why\n}\n",
    )
    assert bundle(entry) == "/** @type {any} */ (a).b();\nfunction f() {\n  return g(); // why\n}\n"


@pytest.mark.parametrize(
    ("main", "other", "message"),
    [
        ('import { b } from "./other.js";\n', "export const a = 1;\n", "does not export b"),
        ('import { a as b } from "./other.js";\n', "export const a = 1;\n", "does not export a as"),
        ('import * as all from "./other.js";\n', "", "cannot be bundled"),
        ('import { a } from "./other.js";\n', "export default 1;\n", "cannot be bundled"),
        (
            'import { a } from "./other.js";\n',
            'import { b } from "./main.js";\n',
            "an import cycle by way of other.js",
        ),
    ],
    ids=["unknown name", "renamed", "namespace", "default", "cycle"],
)
def test_unsupported_module_is_not_bundled(
    tmp_path: Path, main: str, other: str, message: str
) -> None:
    """The bundler supports only a few forms of imports and exports, and no import cycles.

    main, other  the texts of two modules, main.js and other.js
    """
    entry = write_modules(tmp_path, main=main, other=other)
    with pytest.raises(BundleError, match=message):
        bundle(entry)


def test_two_modules_with_one_file_name_are_refused(tmp_path: Path) -> None:
    """page/data.js and data.js have the same file name, after which their functions are named."""
    (tmp_path / "page").mkdir()
    write_modules(tmp_path / "page", data="export const a = 1;\n")
    entry = write_modules(
        tmp_path,
        main='import { a } from "./page/data.js";\nimport { b } from "./data.js";\n',
        data="export const b = 2;\n",
    )
    with pytest.raises(BundleError, match="another module has the same file name"):
        bundle(entry)


def test_every_module_is_imported() -> None:
    """Each JavaScript module is imported by another module, except those in ENTRIES.

    ENTRIES are the modules that pages load.
    """
    modules = {
        path
        for folder in (REPORT_PAGE, SITE_PAGES, DEMO_STATIC)
        for path in folder.rglob("*.js")
        if "vendor" not in path.parts
    }
    imported_modules = {
        (module.parent / target).resolve()
        for module in modules
        for target in IMPORTED_PATH.findall(module.read_text(encoding="utf-8"))
    }
    assert modules - imported_modules == ENTRIES
