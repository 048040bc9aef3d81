"""Exported plans really train: four processes of ``torch.distributed.pipelining`` over Gloo on CPU."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import taut
from taut.launchers.recipes import module_fields
from taut.launchers.settings import Run
from taut.launchers.torchtitan import torchtitan_launch
from tests.support.launches import divided, launched_on, shuffled, small_cluster

pytestmark = pytest.mark.proof

torch = pytest.importorskip("torch")
MODEL = taut.ModelSpec.parse(
    {"name": "tiny", "layers": 9, "hidden": 16, "heads": 2, "ffn_hidden": 64, "seq": 6, "vocab": 32}, "tiny"
)
DIVISIONS = {"1f1b": (1, 3, 3, 2), "interleaved-1f1b": (1, 1, 2, 1, 1, 1, 1, 1), "zb-v": (1, 1, 1, 2, 1, 1, 1, 1)}

needs_gloo = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="torch has no Gloo"
)


@needs_gloo
@pytest.mark.parametrize("schedule", ["1f1b", pytest.param("interleaved-1f1b", marks=pytest.mark.long), "zb-v"])
def test_losses_of_ten_steps_are_those_without_a_pipeline(schedule: str, tmp_path: Path) -> None:
    """
    Uneven chunks and the passes' order come from the exported files, and every device takes the rank that it has there.

    The placement is drawn at random, so that a wrong permutation would run a stage elsewhere than its messages go.
    """
    cluster = small_cluster(nodes=1, gpus=4)
    fix = {"pp": 4, "tp": 1, "micro_batch": 1, "schedule": schedule, "zero": 0, "recompute": "none"}
    job = divided(shuffled(launched_on(cluster, MODEL, **fix), 2), DIVISIONS[schedule])
    taut.export(job.plan, "torchtitan", tmp_path)
    taut.export(job.plan, ["torch-csv", "rankfile"], tmp_path, force=True)
    found = torchtitan_launch(module_fields((tmp_path / "taut_plan.py").read_text()).fields, Run()).values
    ends = np.cumsum([0, *(int(size) for size in found["layers"].split("|"))]).tolist()
    slots = [int(line.rpartition("=")[2]) for line in (tmp_path / "rankfile").read_text().splitlines()]
    micro_batches = job.strategy.num_micro_batches
    from torch.multiprocessing.spawn import spawn

    from tests.support.pipeline_worker import train, trained

    ranks = np.argsort(slots).tolist()
    assert ranks != sorted(ranks)
    spawn(train, (str(tmp_path), ranks, list(pairwise(ends)), micro_batches), nprocs=4)
    losses = json.loads((tmp_path / "losses.json").read_text())
    assert losses == pytest.approx(trained(micro_batches), rel=1e-12)
    assert losses[-1] < losses[0]
