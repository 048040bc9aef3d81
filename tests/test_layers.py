"""
The structure of the sources as their imports and folders show it: errors <- data <- formulations <- solver <- face.

Nothing is imported to check it; the sources are parsed. A lazy import inside a function counts like any other. Each
rule is one test over all files and lists every offender.
"""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("data", "formulations", "solver")
PACKAGE = ROOT / "src" / "taut"
FACE = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in LAYERS)
SOURCES = {layer: sorted((ROOT / layer).glob("**/*.py")) for layer in LAYERS}
EVERY = [*FACE, *(path for layer in LAYERS for path in SOURCES[layer])]
ALLOWED = {
    "data": {"taut.errors", "taut.data"},
    "formulations": {"taut.errors", "taut.data", "taut.formulations"},
    "solver": {"taut.errors", "taut.data", "taut.formulations", "taut.solver"},
}
SOLVERS = {"numba", "ortools", "pulp", "scipy", "highspy"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything that a module imports, at the top, in functions or for typing alone."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            yield from ((node.lineno, f"{dots}{node.module or ''}.{alias.name}") for alias in node.names)


def first_part(imported: str) -> str:
    return imported.partition(".")[0]


def reached_layer(imported: str) -> str | None:
    """The layer that an import of ours reaches, such as ``taut.data``; None for other packages."""
    parts = imported.split(".")
    return ".".join(parts[:2]) if parts[0] == "taut" else None


def package(folder: Path) -> str:
    """The import name of a folder of sources."""
    parts = folder.relative_to(PACKAGE if folder.is_relative_to(PACKAGE) else ROOT).parts
    return ".".join(("taut", *parts))


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Public classes and functions, with the public methods of public classes, and their docstrings; no overloads."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            if any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list):
                continue
            yield f"{prefix}{node.name}", ast.get_docstring(node)
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


def test_there_is_something_to_check() -> None:
    """Every layer has modules, so that the rules below check something."""
    assert len(FACE) >= 5
    assert all(len(paths) >= 5 for paths in SOURCES.values())


def test_rooms_of_the_solver_are_in_one_order() -> None:
    """No folder of the solver imports one that imports it, over however many others: the drawing has no way back up."""
    graph: dict[str, set[str]] = {}
    for path in SOURCES["solver"]:
        if len(path.relative_to(ROOT).parts) == 2:
            continue
        room = path.relative_to(ROOT).parts[1]
        reached = [each.split(".") for _, each in imports(path) if each.startswith("taut.solver.")]
        others = {parts[2] for parts in reached if (ROOT / "solver" / parts[2]).is_dir()} - {room}
        graph.setdefault(room, set()).update(others)
    order = [*TopologicalSorter(graph).static_order()]
    assert len(order) >= 10
    assert order.index("bounds") < order.index("placement") < order.index("ladder") < order.index("search")


def test_imports_are_absolute_and_ours_by_their_full_name() -> None:
    """No relative imports, and no layer by its folder's name alone."""
    refused = {"", *LAYERS}
    assert [(name(path), *found) for path in EVERY for found in imports(path) if first_part(found[1]) in refused] == []


def test_layers_import_only_what_lies_below() -> None:
    """Data imports no layer but itself, formulations data, solver both; none imports the face."""
    offenders = [
        (name(path), line, imported)
        for layer in LAYERS
        for path in SOURCES[layer]
        for line, imported in imports(path)
        if reached_layer(imported) not in {None, *ALLOWED[layer]}
    ]
    assert offenders == []


def test_the_core_imports_no_paper() -> None:
    """Reproductions and peers' cost models import the core; the command that shows them alone imports them."""
    reader = PACKAGE / "commands" / "reproduce.py"
    core = [path for path in EVERY if not path.is_relative_to(PACKAGE / "papers") and path != reader]
    found = [(name(path), *each) for path in core for each in imports(path) if each[1].startswith("taut.papers")]
    assert found == []


def test_errors_import_nothing_of_ours() -> None:
    """The tree of errors stands below everything."""
    assert [imported for _, imported in imports(PACKAGE / "errors.py") if reached_layer(imported)] == []


@pytest.mark.parametrize(
    ("paths", "refused"),
    [
        pytest.param(SOURCES["data"], SOLVERS, id="data"),
        pytest.param(SOURCES["formulations"], SOLVERS - {"numba"}, id="formulations"),
        pytest.param(FACE, SOLVERS, id="face"),
    ],
)
def test_the_solver_alone_names_solver_libraries(paths: list[Path], refused: set[str]) -> None:
    """Data, formulations and face import no solver library; formulations compile their evaluators of orders."""
    assert [(name(path), *found) for path in paths for found in imports(path) if first_part(found[1]) in refused] == []


def loaded_with(module: str, seen: set[str]) -> set[str]:
    """The modules of the face that importing one of them loads, by the imports at their top level."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if module in seen or not path.is_file():
        return seen
    seen.add(module)
    for node in tree(path).body:
        if isinstance(node, ast.ImportFrom) and first_part(node.module or "") == "taut":
            loaded_with(node.module or "", seen)
    return seen


def test_package_and_command_line_load_lazily() -> None:
    """The package and the command line load command modules, the errors and nothing else of ours at their top level."""
    loaded = loaded_with("taut.commands.app", loaded_with("taut", set()))
    assert {module for module in loaded if not module.startswith("taut.commands")} == {"taut", "taut.errors"}
    assert len(loaded) >= 5


def test_everything_public_says_what_it_is() -> None:
    """Every module and package, and every public class, function and method in it, has a docstring."""
    silent = [name(path) for path in EVERY if not ast.get_docstring(tree(path))]
    silent += [f"{name(path)}: {called}" for path in EVERY for called, text in public(tree(path).body) if not text]
    assert silent == []


def test_every_folder_is_packaged() -> None:
    """Folders of sources have an ``__init__``, and the catalog's files are package data."""
    folders = {path.parent for path in EVERY}
    assert [name(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []
    catalog = ROOT / "data" / "catalog"
    listed = {path for path in catalog.rglob("*.*") if path.suffix != ".pyc"}
    folders |= {path.parent for path in listed}
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packaged = [
        path
        for folder in folders
        for kind in setuptools["package-data"].get(package(folder), ())
        for path in folder.glob(kind)
    ]
    assert {path for path in listed if path.suffix != ".py"} <= set(packaged)


def test_layers_are_linked_into_the_package() -> None:
    """``taut.data``, ``taut.formulations`` and ``taut.solver`` are the folders at the top; links reach them."""
    for layer in LAYERS:
        link = PACKAGE / layer
        assert not link.exists() or link.resolve() == (ROOT / layer).resolve()
        assert len(tree(ROOT / layer / "__init__.py").body) == 1
