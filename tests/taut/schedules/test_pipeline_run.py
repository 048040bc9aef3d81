"""Exported schedules really run: four processes of ``torch.distributed.pipelining`` over Gloo on CPU."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.formulations.schedules.schedule import PlacedProblem, timetable, violations
from taut.formulations.schedules.stages import Stages
from taut.schedules.reading import read_torch_csv, torch_csv
from taut.solver.schedules.kinds import build

pytestmark = pytest.mark.proof

torch = pytest.importorskip("torch")
STAGES, MICRO_BATCHES = 4, 8
KINDS = {"1f1b": ("sequential", 1), "zb-v": ("v", 2), "v-half": ("v", 2)}

needs_gloo = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="torch has no Gloo"
)


def pipeline(kind: str) -> PlacedProblem:
    """Four stages of unequal passes, with a transfer between."""
    times: dict[str, Any] = {"forward": [1.0], "backward": [1.2], "weight": [0.8], "comm": [0.05]}
    return Stages(stages=STAGES, micro_batches=MICRO_BATCHES, **times).place(*KINDS[kind])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Folder of the exported schedules, and what each process found."""
    folder = tmp_path_factory.mktemp("pipeline")
    for kind in KINDS:
        problem = pipeline(kind).problem
        (folder / f"{kind}.csv").write_text(torch_csv(problem, build(kind, problem)), encoding="utf-8")
    from torch.multiprocessing.spawn import spawn

    from tests.support.pipeline_worker import run

    spawn(run, (str(folder), STAGES, MICRO_BATCHES), nprocs=STAGES)
    return folder, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(STAGES)]


@needs_gloo
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_of_the_model_without_a_pipeline(
    kind: str, ran: tuple[Path, list[dict[str, Any]]]
) -> None:
    """
    In double precision every gradient of every parameter differs by rounding alone, and so does the loss.

    A block has 12 parameters, embedding 1 and head 2, each with a gradient that is not 0.
    """
    found = [rank[kind] for rank in ran[1]]
    assert sum(rank["parameters"] for rank in found) == 8 * 12 + 1 + 2
    assert max(rank["error"] for rank in found) < 1e-14
    (last,) = [rank for rank in found if "loss" in rank]
    assert last["loss"] == pytest.approx(last["reference"], rel=1e-14)


@needs_gloo
@pytest.mark.parametrize("kind", KINDS)
def test_what_ran_is_what_was_built(kind: str, ran: tuple[Path, list[dict[str, Any]]]) -> None:
    """The exported orders are feasible, as long as the schedule that was built, and hold no more."""
    problem = pipeline(kind).problem
    exported, built = read_torch_csv(ran[0] / f"{kind}.csv"), build(kind, problem)
    assert violations(problem, exported) == ()
    ours, theirs = timetable(problem, exported), timetable(problem, built)
    assert ours.makespan == pytest.approx(theirs.makespan, rel=1e-12)
    assert np.all(ours.peak_memory <= theirs.peak_memory + 1e-12)


@needs_gloo
def test_orders_that_pytorch_writes_are_read(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    """PyTorch's own ZB-V is feasible on our V placement and holds what 1F1B holds."""
    placed = pipeline("zb-v")
    own = read_torch_csv(ran[0] / "own.txt")
    assert violations(placed.problem, own) == ()
    assert timetable(placed.problem, own).peak_memory.max() <= placed.reference_memory
