"""Orders that are given rather than found: our JSON, which holds its pipeline, or PyTorch's CSV, which does not."""

from pathlib import Path

import numpy as np

from taut.errors import DataError
from taut.formulations.schedule import Ints, Schedule, timetable
from taut.schedule_files import PlacedProblem, checked, load_schedule
from taut.schedule_posing import CHUNKS, Stages, device_map
from taut.schedule_space import Built
from taut.schedule_torch import read_torch_csv


def given_json(path: Path) -> Built:
    """
    Read a schedule document with its pipeline.

    Raises
    ------
    DataError
        If the file is no schedule, or its orders are not feasible.
    """
    placed, schedule = load_schedule(path)
    return Built(placed=placed, schedule=schedule, times=timetable(placed.problem, schedule))


def given_csv(path: Path, stages: Stages) -> Built:
    """
    Read PyTorch's CSV, and place the chunks of a pipeline as its rows say.

    Raises
    ------
    DataError
        If the file is no schedule, does not suit the pipeline, or its orders are not feasible.
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
