"""What is chosen within a candidate beside the placement: stages, and recompute of each."""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.space import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """
    A candidate with its stages (layer ranges, end exclusive) and recompute per stage.

    With vpp chunks a device the stages are the pp vpp chunks, in the order of the layers.
    """

    candidate: Candidate
    stages: tuple[tuple[int, int], ...]
    recompute: tuple[str, ...]

    @property
    def ranges(self) -> tuple[Ints, Ints, Ints]:
        """Recompute index, first and end layer of every stage."""
        recompute = np.array([RECOMPUTE.index(name) for name in self.recompute])
        first, end = np.array(self.stages).T
        return recompute, first, end
