"""What checks a certificate shares no solver, search or annealing with what wrote it: its imports reach none."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.alone import alone, unpacked, written

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
    return written(tmp_path_factory.mktemp("documents"))


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


@pytest.mark.proof
def test_the_wheel_of_the_checker_verifies_where_numpy_alone_is(documents: list[str], tmp_path: Path) -> None:
    """Unpacked beside numpy it imports all its modules, checks plans and a schedule, and refuses what is forged."""
    empty = unpacked(tmp_path)
    (metadata,) = empty.glob("taut_verify-*.dist-info/METADATA")
    stated = re.findall(r"^Requires-Dist: ([A-Za-z0-9_-]+)[>=<,0-9.]+$", metadata.read_text(), re.MULTILINE)
    assert stated == ["numpy"]
    sources = empty / "taut_verify" / "sources"
    paths = (each.relative_to(sources).with_suffix("") for each in sources.rglob("*.py") if each.name != "__init__.py")
    names = [".".join(each.parts) for each in paths]
    assert len(names) > 150
    imported = alone(empty, f"sys.path.insert(0, {str(sources)!r})\nfor each in sys.argv[1:]: __import__(each)", *names)
    assert (imported.returncode, imported.stderr) == (0, "")
    check = "import taut_verify.__main__ as m; m.main()"
    run = alone(empty, check, *documents)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count(": holds; ") == 4
    for path in documents:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        bound = next(name for name in values["certificate"] if name.startswith("lower_bound"))
        values["certificate"][bound] *= 1.01
        (tmp_path / "forged.json").write_text(json.dumps(values), encoding="utf-8")
        run = alone(empty, check, tmp_path / "forged.json")
        assert run.returncode == 1
        assert "does not hold" in run.stderr
        values["format"] = 1
        (tmp_path / "other.json").write_text(json.dumps(values), encoding="utf-8")
        run = alone(empty, check, tmp_path / "other.json")
        assert run.returncode == 2
        assert "format: is 1, expected " in run.stderr
        assert run.stderr.count("\n") == 1
