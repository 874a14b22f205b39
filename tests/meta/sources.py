"""The source files of the project, parsed, and what each of them imports."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from attrs import field, frozen

ROOT = Path(__file__).parents[2]


@frozen
class Source:
    """One file of Python: `module` is its dotted name, `imports` are full dotted names of modules."""

    path: Path
    module: str
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)

    @property
    def name(self) -> str:
        """The path from the root of the project."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def imports(self) -> set[str]:
        """What it imports, wherever in the file; `from a import b` is `a.b` where that is a module."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=names):
                    found.update(alias.name for alias in names)
                case ast.ImportFrom(module=module, names=names, level=0) if module is not None:
                    below = {f"{module}.{alias.name}" for alias in names}
                    found.update({name for name in below if _is_module(name)} or {module})
                case ast.ImportFrom():
                    raise AssertionError(f"{self.name}: a relative import")
        return found

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@cache
def sources(package: str) -> tuple[Source, ...]:
    """Every source file of `kernel` or `plugins`."""
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths, package
    return tuple(_read(path) for path in paths)


def _read(path: Path) -> Source:
    parts = path.relative_to(ROOT).with_suffix("").parts
    text = path.read_text()
    return Source(path, ".".join(part for part in parts if part != "__init__"), text, ast.parse(text))
