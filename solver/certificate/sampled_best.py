r"""
The best plan that is sampled of a candidate, beside the candidate's bound.

A bound b is refuted by a plan of its candidate with step time :math:`T < b (1 - 10^{-9})`, or by any where nothing is
said to fit. (1)
"""

import math
from dataclasses import dataclass, field

import numpy as np

from taut.data.arrays import Ints
from taut.solver.certificate.reference.divisions import Stages
from taut.solver.certificate.reference.space import Choice
from taut.solver.certificate.sampled_divisions import Recompute

TOLERANCE = 1e-9


@dataclass
class Best:
    """The best plan known of a candidate: bytes over the limit, then seconds."""

    choice: Choice
    bound: float
    key: tuple[float, float] = (math.inf, math.inf)
    stages: Stages = ()
    recompute: Recompute = ()
    devices: Ints = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.int64))

    @property
    def refutes(self) -> bool:
        """Whether the plan refutes the bound, (1)."""
        excess, seconds = self.key
        return excess <= 0 and (math.isinf(self.bound) or seconds < self.bound * (1 - TOLERANCE))

    @property
    def promise(self) -> tuple[float, float]:
        """How near the plan is to refuting the bound; less is nearer."""
        excess, seconds = self.key
        return excess, seconds / self.bound if self.bound > 0 and math.isfinite(self.bound) else 1.0


def refutation(best: Best) -> str:
    """What a refuted bound says and the plan takes, in a line."""
    choice, seconds = best.choice, best.key[1]
    contexts = f" cp={choice.cp}" if choice.cp > 1 else ""
    contexts += f" ep={choice.ep} etp={choice.etp}" if choice.ep > 1 else ""
    name = f"pp={choice.pp} tp={choice.tp}{contexts} dp={choice.dp} micro_batch={choice.micro_batch} {choice.schedule}"
    name += " uneven batch" if choice.pipelines_by_type else ""
    claim = "is said to be infeasible" if math.isinf(best.bound) else f"has the bound {best.bound}"
    return f"candidate {name} {claim}, but a sampled plan of it takes {seconds}"
