"""What checks a certificate shares no solver, search or annealing with what wrote it: its imports reach none."""

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from taut.formulations.schedules.stages import Stages
from taut.schedules.portfolio import ScheduleSearch, best_schedule
from taut.solver.certificate.write import mesh_document, plan_document
from taut.solver.meshes.search import search_meshes
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


LIBRARIES = ("llvmlite", "networkx", "numba", "ortools", "pandas", "pulp", "rich", "scipy", "typer")
OF_NUMBA = {"llvmlite", "numba", "scipy"}
CHECK = """
import json, sys
from pathlib import Path
from taut.verification import checked
found = [checked(Path(path))[0].faults for path in sys.argv[1:]]
print(json.dumps({"faults": found, "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A plan in closed form, one priced by its order, one of meshes, and a schedule, as files."""
    folder = tmp_path_factory.mktemp("documents")
    given: list[Any] = [
        problem(cluster(4, 1), model(8), schedules=schedules, fixed={"pp": 4})
        for schedules in (["1f1b", "gpipe"], ["zb-h1", "interleaved-1f1b"])
    ]
    limits = Limits(work_limit=6)
    made = [plan_document(each, search(each, limits), limits) for each in given]
    meshes = replace(given[0], latency_model="step")
    made.append(mesh_document(meshes, search_meshes(meshes, limits), limits))
    made.append(
        best_schedule(
            Stages(stages=2, micro_batches=4, forward=(1.0,), backward=(1.0,), weight=(1.0,)), ScheduleSearch()
        ).document
    )
    for k, document in enumerate(made):
        (folder / f"{k}.json").write_text(json.dumps(document), encoding="utf-8")
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.mark.proof
@pytest.mark.parametrize(("held", "compiles"), [((0, 2, 3), False), ((1,), True)], ids=["little work", "an order"])
def test_verifying_loads_no_solver_search_or_annealing(documents: list[str], held: list[int], compiles: bool) -> None:
    """In a fresh process that checks plans and a schedule none is loaded; numba, and its SciPy, for much work alone."""
    given = [documents[k] for k in held]
    run = subprocess.run([sys.executable, "-c", CHECK, *given], capture_output=True, text=True, check=True)
    outcome = json.loads(run.stdout)
    assert outcome["faults"] == [[] for _ in held]
    assert "taut.solver.ladder.checks" in outcome["modules"]
    refused = {*FORBIDDEN, *LIBRARIES} - (OF_NUMBA if compiles else set())
    prefixes = tuple(f"{one}." for one in refused)
    assert [name for name in outcome["modules"] if f"{name}.".startswith(prefixes)] == []


def needed(name: str) -> set[str]:
    """Names of a distribution and of all that it requires, extras aside."""
    requires = [each for each in distribution(name).requires or [] if "extra ==" not in each]
    return {name}.union(*(needed(re.split(r"[^A-Za-z0-9_-]", each, maxsplit=1)[0]) for each in requires))


@pytest.mark.proof
def test_the_wheel_of_the_checker_verifies_where_nothing_else_is(documents: list[str], tmp_path: Path) -> None:
    """Unpacked beside the distributions that its metadata names, and nothing more, it checks plans and a schedule."""
    script = ROOT / "packaging" / "taut-verify" / "build_wheel.py"
    subprocess.run([sys.executable, script, tmp_path / "dist"], capture_output=True, check=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.stat().st_size < 1_000_000
    empty = tmp_path / "empty"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(empty)
    (metadata,) = empty.glob("*.dist-info/METADATA")
    stated = re.findall(r"^Requires-Dist: ([A-Za-z0-9_-]+)[>=<,0-9.]+$", metadata.read_text(), re.MULTILINE)
    assert stated == ["numpy", "pydantic", "pyyaml"]
    for name in set[str]().union(*map(needed, stated)):
        kept = distribution(name)
        tops = {file.parts[0] for file in kept.files or [] if not file.name.endswith(".pyc")}
        for top in tops - {"..", "__pycache__"}:
            (empty / top).symlink_to(Path(str(kept.locate_file(top))))
    start = f"import sys; sys.path.append({str(empty)!r}); import taut_verify.__main__ as m; m.main()"
    command = [sys.executable, "-I", "-S", "-c", start]
    run = subprocess.run([*command, *documents], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count(": holds; ") == 4
    broken = json.loads(Path(documents[0]).read_text(encoding="utf-8"))
    broken["certificate"]["objective_s"] *= 0.99
    (tmp_path / "broken.json").write_text(json.dumps(broken), encoding="utf-8")
    run = subprocess.run([*command, tmp_path / "broken.json"], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "does not hold" in run.stderr
