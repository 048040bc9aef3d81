"""The notebooks: run from top to bottom, committed without outputs, and small."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
IMPORTS = {"taut", "json", "matplotlib.pyplot"}
MOST_LINES = 5

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook as it is committed."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def test_there_is_a_notebook() -> None:
    """The checks below do check something."""
    assert NOTEBOOKS


@by_name
def test_notebook_is_committed_without_outputs(path: Path) -> None:
    """Valid format, a name for every cell, and neither outputs nor execution counts."""
    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert all(cell.id for cell in notebook.cells)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@by_name
def test_notebook_leaves_the_work_to_the_library(path: Path) -> None:
    """Imports are taut, json and pyplot; no function is longer than five lines."""
    notebook = read(path)
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    for part in ast.walk(ast.parse(source)):
        if isinstance(part, ast.Import):
            assert {name.name for name in part.names} <= IMPORTS
        if isinstance(part, ast.ImportFrom):
            assert part.module in IMPORTS
        if isinstance(part, ast.FunctionDef | ast.Lambda):
            assert (part.end_lineno or part.lineno) - part.lineno < MOST_LINES


@pytest.mark.proof
@by_name
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    """Every cell, and so every claim that is asserted in one, holds; no file beside the notebook is needed."""
    notebook = read(path)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    assert not list(tmp_path.iterdir())
