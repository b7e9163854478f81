"""A bundler of ES modules, for a page that is opened from disk and cannot import a file.

The bundle is one script. Each imported module becomes a function that is called once and returns
the module's exports; its other names stay local. The entry module comes last and is not wrapped.
Comments that share no line with code, `//` and `/** */`, are left out, to make the page smaller.
"""

import re
from dataclasses import dataclass
from pathlib import Path

#: The only forms of import and export that can be bundled.
IMPORT = re.compile(r'^import \{([^}]+)\} from "(\.[^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:(?:async )?function|class|const) ([\w$]+))", re.MULTILINE)
#: A comment with nothing else on its lines.
COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)\n", re.MULTILINE)
#: A form that is left over once the two forms above have been removed.
OTHER_FORM = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class BundleError(Exception):
    """A module cannot be bundled. The message names the module and the reason."""


@dataclass(frozen=True, slots=True)
class Module:
    """A file as a module.

    imports  the imported names, by the file that exports them
    exports  the exported names
    body     the text without `import`, `export` and comments
    """

    path: Path
    imports: dict[Path, list[str]]
    exports: list[str]
    body: str

    @property
    def variable(self) -> str:
        """The name of the variable that has the module's exports in the bundle."""
        return f"{self.path.stem}_js"


def bundle(entry: Path) -> str:
    """Return one script that has the same effect as the module `entry`. Raises BundleError."""
    modules: dict[Path, Module] = {}
    _add_with_imports(entry.resolve(), modules, [])
    *imported_modules, entry_module = modules.values()  # the entry was added last
    variables = [module.variable for module in imported_modules]
    for module in imported_modules:
        if variables.count(module.variable) > 1:
            raise BundleError(f"{module.path}: another module has the same file name; rename one")
    functions = [_wrap_in_function(module, modules) for module in imported_modules]
    return "".join(functions) + _destructure_imports(entry_module, modules) + entry_module.body


def _add_with_imports(path: Path, modules: dict[Path, Module], importers: list[Path]) -> None:
    """Add a module to `modules`, after the modules that it imports.

    importers  the chain of imports that leads to this module, from the entry on

    Raises BundleError if the modules import each other, or if an imported name is not exported.
    """
    if path in importers:
        raise BundleError(f"{path}: an import cycle by way of {importers[-1].name}; remove it")
    if path in modules:
        return
    module = _read_module(path)
    for imported_path, names in module.imports.items():
        _add_with_imports(imported_path, modules, [*importers, path])
        for name in names:
            if name not in modules[imported_path].exports:
                raise BundleError(f"{path}: {imported_path.name} does not export {name}")
    modules[path] = module


def _read_module(path: Path) -> Module:
    """Return the module in a file. Raises BundleError for a form that cannot be bundled."""
    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
    imports: dict[Path, list[str]] = {}
    for imported_names, target in IMPORT.findall(text):
        names = [name.strip() for name in imported_names.split(",") if name.strip()]
        imports.setdefault((path.parent / target).resolve(), []).extend(names)
    body = EXPORT.sub("", IMPORT.sub("", text))
    unsupported_form = OTHER_FORM.search(body)
    if unsupported_form:
        raise BundleError(
            f"{path}: {unsupported_form[0]!r} cannot be bundled; use `import {{ name }} from` and "
            "`export` before a declaration"
        )
    return Module(path, imports, EXPORT.findall(text), body)


def _destructure_imports(module: Module, modules: dict[Path, Module]) -> str:
    """Return the lines that take the imported names from the variables of their modules."""
    return "".join(
        f"const {{ {', '.join(names)} }} = {modules[path].variable};\n"
        for path, names in module.imports.items()
    )


def _wrap_in_function(module: Module, modules: dict[Path, Module]) -> str:
    """Return the lines that run the module in a function and assign its exports to its variable."""
    exports = ", ".join(module.exports)
    return (
        f"const {module.variable} = (() => {{\n{_destructure_imports(module, modules)}{module.body}"
        f"return {{ {exports} }};\n}})();\n"
    )
