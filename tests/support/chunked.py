"""Small problems whose best plans have several chunks a device: a head as slow as layers, few micro-batches."""

from dataclasses import replace
from typing import Any

import numpy as np

from taut.data.model import ModelSpec
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import StrategySpace
from tests.support.small import cluster, costs, problem


def chunked(seed: int, **space: Any) -> PlanningProblem:
    """
    Eight to twelve layers with embedding and head on two or four devices of two pipeline stages.

    ``space``: further fields of the space.
    """
    rng = np.random.default_rng(seed)
    layers, devices = int(rng.integers(8, 13)), int(rng.choice([2, 4]))
    values = {"name": "m", "layers": layers, "hidden": 64, "heads": 4, "seq": 128, "vocab": 256}
    spec = ModelSpec.parse(values, "m")
    table = costs(spec, seconds={"block": 0.01})
    plain = [row for row in table.rows if row.recompute == "none"]
    ends = [_scaled(row, kind, float(rng.uniform(0.1, 2.5))) for row in plain for kind in ("embedding", "head")]
    given = problem(
        cluster(1, devices, latency_us=1.0),
        spec,
        table=table.model_copy(update={"rows": [*table.rows, *ends]}),
        latency_model="step",
        max_tp=1,
        recompute=["none"],
        fixed={"pp": 2, "micro_batch": 1},
    )
    update = {"schedules": ["1f1b", "interleaved-1f1b"], "max_vpp": 4, "empty_ends": bool(seed % 3), **space}
    return replace(given, space=StrategySpace.model_validate({**given.space.model_dump(), **update}))


def _scaled(row: Any, kind: str, factor: float) -> Any:
    seconds = {name: factor * getattr(row, name) for name in ("forward_s", "input_grad_s", "weight_grad_s")}
    return row.model_copy(update={"kind": kind, **seconds})
