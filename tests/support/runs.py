"""What runs of a calibration have been, for problems of tests."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np

from taut.data.calibration import OPTIONAL, TERMS, Calibration
from taut.data.costs import RECOMPUTE
from taut.data.layers.mixer import Mixing
from taut.data.seen import Seen
from taut.data.stack import SCHEDULES
from taut.formulations.problem import PlanningProblem

WIDE: dict[str, Any] = {
    **{name: [1, 10**9] for name in ("n_gpus", "seq", "micro_batch", "tp", "cp", "ep", "etp", "pp", "vpp")},
    **{name: [0.0, 1.0] for name in ("optimizer_offload", "activation_offload")},
    **{name: [False, True] for name in ("copies", "uneven_batch")},
    "precision": ["bf16", "fp16", "fp32"],
    "recompute": list(RECOMPUTE),
    "schedule": list(SCHEDULES),
    "zero": [0, 1, 2, 3],
    "mixing": list(get_args(Mixing)),
}
PLAIN = {term: 0.0 if term == "constant" else 1.0 for term in TERMS if term not in OPTIONAL}


def seen(**fields: Any) -> Seen:
    """Runs that had everything but what is said."""
    return Seen.parse({**WIDE, **fields}, "runs")


def with_runs(given: PlanningProblem, **fields: Any) -> PlanningProblem:
    """The problem at the same prices, with a calibration whose runs had everything but what is said."""
    known = given.calibration or Calibration(name="runs", coefficients=PLAIN, experts=given.model.has_experts)
    return replace(given, calibration=known.model_copy(update={"seen": seen(**fields)}))


def with_few_runs(seed: int, given: PlanningProblem, **fields: Any) -> PlanningProblem:
    """The problem with runs that had fields of one or two candidates, one or two kinds of recompute, and ``fields``."""
    rng, every = np.random.default_rng(seed), given.candidates
    drawn = [every[int(i)] for i in rng.integers(len(every), size=int(rng.integers(1, 3)))]

    def span(name: str) -> list[Any]:
        values = [getattr(candidate, name) for candidate in drawn]
        return [min(values), max(values)]

    kinds = [str(kind) for kind in rng.choice(given.space.recompute, size=int(rng.integers(1, 3)))]
    return with_runs(
        given,
        **{name: span(name) for name in ("micro_batch", "pp", "vpp")},
        **({"tp": span("tp")} if rng.random() < 0.5 else {}),
        zero=sorted({candidate.zero for candidate in drawn}),
        schedule=sorted({candidate.schedule for candidate in drawn}),
        recompute=[kind for kind in RECOMPUTE if kind in kinds],
        **fields,
    )
