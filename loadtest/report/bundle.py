"""One script made of ES modules, for a page that is opened from disk and cannot import a file.

Each imported module becomes a function that is called once: it takes what the module imports, keeps
what it does not export, and returns what it exports. The entry comes last, as it is. Comments on
lines of their own are left out: a page is smaller without them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

#: The two forms that modules are written in here; any other one is refused.
IMPORT = re.compile(r'^import \{([^}]+)\} from "(\.[^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:(?:async )?function|class|const) ([\w$]+))", re.MULTILINE)
#: A comment with nothing else on its lines.
COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)\n", re.MULTILINE)
OTHER_FORM = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class BundleError(Exception):
    """A module cannot be bundled; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Module:
    """A file as a module.

    imports  the names that it imports, by the file that has them
    exports  the names that it exports
    body     its text without import, export and comments
    """

    path: Path
    imports: dict[Path, list[str]]
    exports: list[str]
    body: str

    @property
    def variable(self) -> str:
        """The variable of the bundle that has its exports."""
        return f"{self.path.stem}_js"


def bundle(entry: Path) -> str:
    """Return one script that does what the module `entry` does. Raises BundleError."""
    modules: dict[Path, Module] = {}
    _add(entry.resolve(), modules, [])
    *imported, last = modules.values()
    variables = [module.variable for module in imported]
    for module in imported:
        if variables.count(module.variable) > 1:
            raise BundleError(f"{module.path}: another module has the same file name; rename one")
    functions = [_function(module, modules) for module in imported]
    return "".join(functions) + _imports(last, modules) + last.body


def _add(path: Path, modules: dict[Path, Module], importers: list[Path]) -> None:
    """Add a module to `modules`, after those that it imports."""
    if path in importers:
        raise BundleError(f"{path}: imports itself, by way of {importers[-1].name}")
    if path in modules:
        return
    module = _read(path)
    for other, names in module.imports.items():
        _add(other, modules, [*importers, path])
        for name in names:
            if name not in modules[other].exports:
                raise BundleError(f"{path}: {other.name} does not export {name}")
    modules[path] = module


def _read(path: Path) -> Module:
    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
    imports = {
        (path.parent / target).resolve(): [
            name.strip() for name in names.split(",") if name.strip()
        ]
        for names, target in IMPORT.findall(text)
    }
    body = EXPORT.sub("", IMPORT.sub("", text))
    other_form = OTHER_FORM.search(body)
    if other_form:
        raise BundleError(f"{path}: {other_form[0]!r} is not of the forms that can be bundled")
    return Module(path, imports, EXPORT.findall(text), body)


def _imports(module: Module, modules: dict[Path, Module]) -> str:
    """Return the lines that take the imported names from the variables of their modules."""
    return "".join(
        f"const {{ {', '.join(names)} }} = {modules[path].variable};\n"
        for path, names in module.imports.items()
    )


def _function(module: Module, modules: dict[Path, Module]) -> str:
    exports = ", ".join(module.exports)
    return (
        f"const {module.variable} = (() => {{\n{_imports(module, modules)}{module.body}"
        f"return {{ {exports} }};\n}})();\n"
    )
