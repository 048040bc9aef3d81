"""The notebooks: run from top to bottom, stored with their outputs and pictures, and small."""

import ast
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import taut

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
IMPORTS = {"json", "matplotlib.pyplot", "pathlib", "tempfile"}
MOST_LINES = 5

PAPERS = {"amp", "hethub", "pipette", "vtrain"}
"""Notebooks of reproductions, whose tables the tests of ``taut.papers`` make in every run."""

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook as it is committed."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def test_there_is_a_notebook() -> None:
    """The checks below do check something."""
    assert NOTEBOOKS


@by_name
def test_notebook_is_stored_with_its_outputs(path: Path) -> None:
    """Valid format, a name for every cell, every cell run in order, no error or warning in it, and a picture."""
    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert all(cell.id for cell in notebook.cells)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@by_name
def test_notebook_leaves_the_work_to_the_library(path: Path) -> None:
    """Imports are taut, pyplot, json and files; no function is longer than five lines."""
    notebook = read(path)
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    for part in ast.walk(ast.parse(source)):
        if isinstance(part, ast.Import):
            assert all(name.name in IMPORTS or name.name == "taut" for name in part.names)
        if isinstance(part, ast.ImportFrom):
            assert part.module in IMPORTS or str(part.module).startswith("taut.")
        if isinstance(part, ast.FunctionDef | ast.Lambda):
            assert (part.end_lineno or part.lineno) - part.lineno < MOST_LINES


@by_name
def test_notebook_names_what_there_is(path: Path) -> None:
    """All that a notebook imports is there, and so is all that it takes from ``taut``."""
    source = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    for part in ast.walk(ast.parse(source)):
        if isinstance(part, ast.ImportFrom):
            assert all(hasattr(import_module(str(part.module)), name.name) for name in part.names)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "taut":
            assert hasattr(taut, part.attr)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=getattr(pytest.mark, "long" if path.stem in PAPERS else "proof")) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    """Every cell, and so every claim that is asserted in one, holds; no file beside the notebook is needed."""
    notebook = read(path)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    assert not list(tmp_path.iterdir())
