"""Who imports whom in the package, read from its source: nothing is run, so nothing can hide in a function.

An import counts wherever it stands: at the top, inside a function, under TYPE_CHECKING, or as the constant text given
to `importlib.import_module`. `from package.module import name` points at `package.module.name` where that is a module.
`python -m tests.import_graph` prints the graph of the subpackages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "cpdpo_jax"
TOP = "__init__"
# bottom up
SUBPACKAGES = ("common", "kernels", "exact", "envs", "learners", "results", "simulation", "sweeps", "cli", TOP)


class Import(NamedTuple):
    """One import of a module of the package by another."""

    source: str  # the module that imports, such as "cpdpo_jax.learners.base"
    target: str  # the module that is imported
    name: str  # what is taken from it; "" for the module itself
    place: str  # path:line

    def __str__(self) -> str:
        return f"{self.place}: {self.source} imports {self.target}" + (f" ({self.name})" if self.name else "")


def modules(package: Path) -> dict[str, Path]:
    """Every module of a package, a folder by its own name: {"cpdpo_jax.learners.base": path}."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == TOP else parts)] = path
    return found


def imports(package: Path) -> list[Import]:
    """Every import of a package's modules by one another, in the order of the files."""
    known = modules(package)
    return [found for source, path in known.items() for found in _of_file(source, path, known, package.name)]


def _of_file(source: str, path: Path, known: Mapping[str, Path], package: str) -> Iterator[Import]:
    inside = source if path.stem == TOP else source.rpartition(".")[0]
    shown = "/".join(path.parts[len(path.parts) - len(inside.split(".")) - 1 :])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        place = f"{shown}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            wanted = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = inside.split(".")[: len(inside.split(".")) - node.level + 1]
                base = ".".join([*up, *filter(None, [node.module])])
            wanted = [(base, alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            wanted = [(text, "") for text in [_constant(node.args[0])] if text]
        else:
            continue
        for module, name in wanted:
            if module.split(".")[0] == package:
                whole = f"{module}.{name}" in known
                yield Import(source, f"{module}.{name}" if whole else module, "" if whole else name, place)


def _constant(node: ast.expr) -> str:
    """The text of an argument; of an f-string what stands before its first value, and a star."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[0]
        return f"{node.value}*" if isinstance(node, ast.Constant) else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def subpackage(module: str) -> str:
    """The subpackage of a module: a folder or file beside the package's `__init__`, or `__init__` itself."""
    name = [*module.split("."), TOP][1]
    return TOP if name == "*" else name  # of `import_module(f"package.{any}")`


def upward_imports(found: list[Import], order: tuple[str, ...] = SUBPACKAGES) -> list[str]:
    """The imports of a subpackage above the importer's own."""
    return [str(item) for item in found if order.index(subpackage(item.target)) > order.index(subpackage(item.source))]


def find_cycle(found: list[Import]) -> list[str]:
    """A cycle of modules that import each other, with the first one repeated at the end; [] if there is none."""
    graph: dict[str, set[str]] = {}
    for item in found:
        if item.source != item.target:
            graph.setdefault(item.source, set()).add(item.target)
    done: set[str] = set()

    def follow(path: list[str]) -> list[str]:
        for target in sorted(graph.get(path[-1], ())):
            if target in path:
                return [*path[path.index(target) :], target]
            if target not in done and (loop := follow([*path, target])):
                return loop
        done.add(path[-1])
        return []

    return next(filter(None, (follow([start]) for start in sorted(graph) if start not in done)), [])


def private_uses(package: Path) -> list[str]:
    """Names with a leading underscore taken from another module: by `from`, or as attributes of an imported module."""
    known, offences = modules(package), [str(item) for item in imports(package) if _is_private(item.name)]
    for source, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bound = {
            alias.asname or alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if (alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}") in known
        }
        for node in ast.walk(tree):
            of = node.value if isinstance(node, ast.Attribute) and _is_private(node.attr) else None
            if isinstance(of, ast.Name) and of.id in bound:
                place = f"{path.relative_to(package.parent)}:{of.lineno}"
                offences.append(f"{place}: {source} uses {ast.unparse(node)}")
    return offences


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def graph() -> str:
    """The subpackages from the top, each with those it imports and how many imports there are."""
    found, lines = imports(PACKAGE), []
    for name in reversed(SUBPACKAGES):
        targets = [
            subpackage(item.target)
            for item in found
            if subpackage(item.source) == name and subpackage(item.target) != name
        ]
        shown = [
            f"{other} {targets.count(other)}"
            + (" UPWARD" if SUBPACKAGES.index(other) > SUBPACKAGES.index(name) else "")
            for other in reversed(SUBPACKAGES)
            if other in targets
        ]
        lines.append(f"{name:10} -> {', '.join(shown) or 'nothing'}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(graph())
