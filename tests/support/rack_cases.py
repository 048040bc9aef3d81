"""Placements of one group a node by the racks in which their stages lie."""

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.solver.placement.path_cover.racks import RackCase


def _confined_first(rack: Ints, placed: Ints) -> Ints:
    """How many stages lie in one rack before the first that does not, (placements,)."""
    of = rack[placed]
    spans = (of != of[:, :1]).any(axis=1)
    return np.asarray(np.where(spans.any(axis=1), spans.argmax(axis=1), placed.shape[2]))


def holds(case: RackCase, rack: Ints, placed: Ints) -> Flags:
    """Which placements (placements, dp, pp) of nodes belong to a case."""
    first = _confined_first(rack, placed)
    return np.asarray((first == case.confined) & (first < placed.shape[2]) if case.spanning else first >= case.confined)
