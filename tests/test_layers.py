"""
The house as its imports show it: errors <- data <- formulations <- solver <- face.

Nothing is imported to check it; the sources are parsed. A lazy import inside a function counts like any other.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("data", "formulations", "solver")
PACKAGE = ROOT / "src" / "taut"
FACE = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in LAYERS)
COMMANDS = [
    "commands/fit.py",
    "commands/import_cluster.py",
    "commands/import_costs.py",
    "commands/pareto.py",
    "commands/place.py",
    "commands/profile.py",
    "commands/reproduce.py",
    "commands/schedule.py",
    "commands/verify.py",
]
"""Modules that hold commands; the command line imports them at its top."""
SOURCES = {layer: sorted((ROOT / layer).glob("**/*.py")) for layer in LAYERS}
EVERY = [*FACE, *(path for layer in LAYERS for path in SOURCES[layer])]
ALLOWED = {
    "data": {"taut.errors", "taut.data"},
    "formulations": {"taut.errors", "taut.data", "taut.formulations"},
    "solver": {"taut.errors", "taut.data", "taut.formulations", "taut.solver"},
}
SOLVERS = {"numba", "ortools", "pulp", "scipy", "networkx", "highspy"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports, at the top, in functions or for typing alone."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)} line {node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def ours(imported: str) -> str | None:
    """The layer that an import of ours reaches, such as ``taut.data``; None for other packages."""
    parts = imported.split(".")
    return ".".join(parts[:2]) if parts[0] == "taut" else None


def test_there_is_something_to_check() -> None:
    """Every layer has modules, so that the checks below check something."""
    assert len(FACE) >= 5
    assert all(len(paths) >= 5 for paths in SOURCES.values())


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_imports_are_absolute_and_ours_by_their_full_name(path: Path) -> None:
    """No relative imports, and no layer by its folder's name alone."""
    for line, imported in imports(path):
        assert imported.partition(".")[0] not in LAYERS, f"{name(path)} line {line}: import taut.{imported}"


@pytest.mark.parametrize(("layer", "path"), [(layer, path) for layer in LAYERS for path in SOURCES[layer]])
def test_layers_import_only_what_lies_below(layer: str, path: Path) -> None:
    """Data imports no layer but itself, formulations data, solver both; none imports the face."""
    for line, imported in imports(path):
        reached = ours(imported)
        assert reached is None or reached in ALLOWED[layer], f"{name(path)} line {line}: {layer} imports {imported}"


def test_errors_import_nothing_of_ours() -> None:
    """The tree of errors stands below everything."""
    assert [imported for _, imported in imports(ROOT / "src" / "taut" / "errors.py") if ours(imported)] == []


@pytest.mark.parametrize("path", [*SOURCES["data"], *SOURCES["formulations"]], ids=name)
def test_data_and_formulations_import_no_solver_library(path: Path) -> None:
    """What is known and what is to be solved are stated without any solver; evaluators of orders are compiled."""
    refused = SOLVERS - {"numba"} if path.is_relative_to(ROOT / "formulations") else SOLVERS
    for line, imported in imports(path):
        assert imported.partition(".")[0] not in refused, f"{name(path)} line {line}: imports {imported}"


@pytest.mark.parametrize("path", FACE, ids=name)
def test_face_reaches_solver_libraries_through_the_solver_alone(path: Path) -> None:
    """The face names no solver library itself."""
    for line, imported in imports(path):
        assert imported.partition(".")[0] not in SOLVERS, f"{name(path)} line {line}: imports {imported}"


@pytest.mark.parametrize("file", ["__init__.py", "commands/app.py", *COMMANDS])
def test_package_and_command_line_load_lazily(file: str) -> None:
    """At their top level, package and command line import nothing of ours but errors, the version and each other."""
    commands = [f"taut.{command.removesuffix('.py').replace('/', '.')}" for command in COMMANDS]
    for node in tree(PACKAGE / file).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("taut"):
            allowed = ("taut", "taut.errors", *commands)
            assert node.module in allowed, f"{file} line {node.lineno}: imports {node.module}"


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Public classes and functions, with the public methods of public classes."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_everything_public_says_what_it_is(path: Path) -> None:
    """Every module, and every public class, function and method in it, has a docstring."""
    module = tree(path)
    assert ast.get_docstring(module), f"{name(path)}: no docstring"
    for called, node in public(module.body):
        assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        assert ast.get_docstring(node), f"{name(path)}: {called} has no docstring"


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_are_linked_into_the_package(layer: str) -> None:
    """``taut.data`` and its like are the folders at the top, reached through a link beside the face."""
    link = ROOT / "src" / "taut" / layer
    if link.exists():
        assert link.resolve() == (ROOT / layer).resolve()
    assert ast.get_docstring(tree(ROOT / layer / "__init__.py"))
    assert len(tree(ROOT / layer / "__init__.py").body) == 1
