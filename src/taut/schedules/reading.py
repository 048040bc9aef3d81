"""
Orders that are given rather than found.

Our JSON and a plan hold the pipeline that they are for, PyTorch's CSV does not.
"""

from pathlib import Path

import numpy as np

from taut.data.arrays import Ints
from taut.data.read import read_json
from taut.errors import DataError
from taut.formulations.latency import violations
from taut.formulations.meshes.timeline import mesh_timeline
from taut.formulations.planned_schedule import planned_schedule
from taut.formulations.schedules.pipeline import PlacedProblem, ScheduleProblem
from taut.formulations.schedules.plan_orders import ON_V
from taut.formulations.schedules.schedule import Schedule, timetable
from taut.formulations.schedules.stages import CHUNKS, Stages, device_map
from taut.schedules.found import checked, load_schedule
from taut.schedules.space import Built
from taut.schedules.torch_csv import read_torch_csv
from taut.solver.certificate.document import FORMAT as PLAN_FORMAT
from taut.solver.certificate.document import MeshDocument, devices_of, mesh_plan_of, parse_plan, problem_of, strategy_of


def given_json(path: Path) -> Built:
    """
    Read a schedule document with its pipeline, or the one that a plan runs.

    Raises ``DataError`` if the file is neither, or its orders are not feasible.
    """
    values = read_json(path, "a schedule or plan")
    if values.get("format") == PLAN_FORMAT:
        placed, schedule, _ = planned(values, str(path))
    else:
        placed, schedule = load_schedule(path)
    return Built(placed=placed, schedule=schedule, times=timetable(placed.problem, schedule))


def planned(values: object, source: str) -> tuple[PlacedProblem, Schedule, int]:
    """
    Pipeline and orders of a plan's slowest replica, in seconds and bytes, and which replica it is.

    A plan of meshes has pipelines for replicas, each as slow as its slowest replica on every stage. Raises
    ``DataError`` if the document is no plan, or its plan is not one of its space or does not fit.
    """
    document = parse_plan(values, source)
    if isinstance(document, MeshDocument):
        given = problem_of(document, source)
        timeline = mesh_timeline(given, mesh_plan_of(document, given, source))
        slowest = timeline.pipelines[timeline.slowest]
        reference = _reference(slowest)
        placed = PlacedProblem(placement="sequential", problem=slowest, reference_memory=reference, unit="s")
        return placed, timeline.schedule, timeline.slowest
    problem, strategy = problem_of(document, source), strategy_of(document.strategy, source)
    devices = devices_of(document, source)
    if strategy.candidate not in problem.candidates:
        raise DataError(f"{source}: strategy: {strategy.candidate}, expected a candidate of certificate.space")
    if faults := violations(problem, strategy, devices):
        raise DataError(f"{source}: {faults[0]}, expected a plan that fits")
    pipeline, schedule, replica = planned_schedule(problem, strategy, devices)
    choice = strategy.candidate
    names = {count: name for name, count in CHUNKS.items()}
    placement = "v" if choice.schedule in ON_V else names[min(choice.vpp, 2)]
    placed = PlacedProblem(placement=placement, problem=pipeline, reference_memory=_reference(pipeline), unit="s")
    return placed, schedule, replica


def _reference(pipeline: ScheduleProblem) -> float:
    """What 1F1B holds on its fullest device with the same chunks in the order of the layers, one share a device."""
    stages = pipeline.num_devices
    shares = pipeline.activation.reshape(stages, -1).sum(axis=1)
    return float((np.minimum(stages - np.arange(stages), pipeline.num_micro_batches) * shares).max())


def given_csv(path: Path, stages: Stages) -> Built:
    """
    Read PyTorch's CSV, and place the chunks of a pipeline as its rows say.

    Raises ``DataError`` if the file is no schedule, does not suit the pipeline, or its orders are not feasible.
    """
    schedule = read_torch_csv(path)
    placed = _placed(path, schedule, stages)
    checked(placed.problem, schedule, str(path))
    return Built(placed=placed, schedule=schedule, times=timetable(placed.problem, schedule))


def _placed(path: Path, schedule: Schedule, stages: Stages) -> PlacedProblem:
    if len(schedule.orders) != stages.stages:
        raise DataError(f"{path}: {len(schedule.orders)} rows, expected {stages.stages}, one for each of --stages")
    device = _device(path, schedule)
    chunks = len(device) // stages.stages
    known = [name for name, count in CHUNKS.items() if count == chunks] or ["round-robin"]
    same = [name for name in known if np.array_equal(device, device_map(name, stages.stages, chunks))]
    return stages.place_on(device, same[0] if same else "other")


def _device(path: Path, schedule: Schedule) -> Ints:
    """Device of every chunk, from the rows that its passes stand in."""
    hosts = [(int(c), d) for d, order in enumerate(schedule.orders) for c in np.unique(order[:, 1])]
    chunks = sorted(c for c, _ in hosts)
    devices = len(schedule.orders)
    if chunks != list(range(len(chunks))) or not chunks or len(chunks) % devices:
        expected = f"every stage from 0 on in one row, as many in all as a multiple of the {devices} rows"
        raise DataError(f"{path}: stages {_short(chunks)}, expected {expected}")
    return np.array([d for _, d in sorted(hosts)], dtype=np.int64)


def _short(chunks: list[int]) -> str:
    shown = " ".join(map(str, chunks[:12]))
    return shown + (" ..." if len(chunks) > 12 else "") if chunks else "none"
