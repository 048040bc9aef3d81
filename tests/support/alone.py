"""The checker's wheel, unpacked beside numpy and nothing else, and documents to check."""

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from taut.formulations.schedules.stages import Stages
from taut.schedules.portfolio import ScheduleSearch, best_schedule
from taut.solver.certificate.write import mesh_document, plan_document
from taut.solver.meshes.search import search_meshes
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.small import cluster, model, problem

SCRIPT = Path(__file__).parents[2] / "packaging" / "taut-verify" / "build_wheel.py"


def written(folder: Path) -> list[str]:
    """A plan in closed form, one priced by its order, one of meshes, and a schedule, as files."""
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


def unpacked(folder: Path) -> Path:
    """Folder with the contents of the wheel and numpy."""
    subprocess.run([sys.executable, SCRIPT, folder / "dist"], capture_output=True, check=True)
    (wheel,) = (folder / "dist").iterdir()
    assert wheel.stat().st_size < 1_000_000
    empty = folder / "empty"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(empty)
    numpy = distribution("numpy")
    for top in {file.parts[0] for file in numpy.files or [] if not file.name.endswith(".pyc")} - {"..", "__pycache__"}:
        (empty / top).symlink_to(Path(str(numpy.locate_file(top))))
    return empty


def alone(empty: Path, code: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process that imports from this folder and the standard library alone."""
    start = f"import sys; sys.path.append({str(empty)!r})\n{code}"
    command = [sys.executable, "-I", "-S", "-c", start, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
