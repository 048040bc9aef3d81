"""What checks a certificate shares no solver, search or annealing with what wrote it: its imports reach none."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.small import cluster, model, problem

ROOT = Path(__file__).parents[3]
FOLDERS = {"taut.data": "data", "taut.formulations": "formulations", "taut.solver": "solver"}
CHECKING = ["verify", "examined", "meshes", "sampling", "document"]
FORBIDDEN = (
    "ortools",
    "pulp",
    "scipy.optimize",
    "taut.solver.search",
    "taut.solver.placement.annealing",
)


def path_of(module: str) -> Path | None:
    """File of a module of ours; None for other modules and for names inside one."""
    for package, folder in {**FOLDERS, "taut": "src/taut"}.items():
        if module == package or module.startswith(f"{package}."):
            base = ROOT / folder / module[len(package) + 1 :].replace(".", "/")
            return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)
    return None


def imports(path: Path) -> Iterator[str]:
    """Everything that a module imports, in functions too, by its full name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached(start: str) -> dict[str, list[str]]:
    """Modules that are reached from one through imports, each with a chain that leads there."""
    chains, waiting = {start: [start]}, [start]
    while waiting:
        module = waiting.pop()
        path = path_of(module)
        for name in imports(path) if path else ():
            # The package itself imports nothing at its top; its functions are not what is meant by its name.
            if name not in chains and name != "taut":
                chains[name] = [*chains[module], name]
                waiting.append(name)
    return chains


def offenders(start: str) -> list[str]:
    """Chains from a module to what it must not reach."""
    return [
        " -> ".join(chain)
        for name, chain in reached(start).items()
        if any(name == one or name.startswith(f"{one}.") for one in FORBIDDEN)
    ]


@pytest.mark.parametrize("module", CHECKING)
def test_checking_side_imports_no_solver_search_or_annealing(module: str) -> None:
    """Through whatever imports, lazy ones included, no module of the checking side reaches them."""
    assert offenders(f"taut.solver.certificate.{module}") == []


def test_the_imports_of_the_writing_side_are_seen() -> None:
    """The same walk finds OR-Tools and SciPy's optimizers behind the writer and the search."""
    assert offenders("taut.solver.certificate.write")
    assert any("ortools" in chain for chain in offenders("taut.solver.search.search"))


CHECK = """
import json, sys
from taut.solver.certificate.verify import verify_document
outcome = verify_document(json.load(sys.stdin))
print(json.dumps({"faults": outcome.faults, "gap": outcome.gap, "modules": sorted(sys.modules)}))
"""


@pytest.mark.proof
@pytest.mark.parametrize("schedules", [["1f1b", "gpipe"], ["zb-h1", "interleaved-1f1b"]])
def test_verifying_loads_no_solver_search_or_annealing(schedules: list[str]) -> None:
    """In a fresh process that checks a plan, none of them is ever loaded."""
    given = problem(cluster(4, 1), model(8), schedules=schedules, fixed={"pp": 4})
    limits = Limits(work_limit=6)
    document = json.dumps(plan_document(given, search(given, limits), limits))
    run = subprocess.run([sys.executable, "-c", CHECK], input=document, capture_output=True, text=True, check=True)
    outcome = json.loads(run.stdout)
    assert outcome["faults"] == []
    assert "taut.solver.ladder.checks" in outcome["modules"]
    loaded = [name for name in outcome["modules"] if f"{name}.".startswith(tuple(f"{one}." for one in FORBIDDEN))]
    assert loaded == []
