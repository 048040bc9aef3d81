r"""
Divisions of the layers in the order of their bounds: the best, the next best, and so on.

Sets and problem are those of ``taut.formulations.partition``. Let F be a box of divisions, least and most layers of
every stage, and b(F) the optimum in it, attained by D, of :math:`n_x` layers. All others in F lie in one of the boxes

(1) :math:`F_{x \pm} = \{D' \in F : n'_y = n_y \; (y < x), \; n'_x < n_x \text{ or } n'_x > n_x\}`, x < pp - 1,

which have no division in common. The box with the least b is taken first.

References
----------
Lawler (1972), A procedure for computing the K best solutions to discrete optimization problems.
"""

import heapq
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.partition import LaterStages, PartitionProblem
from taut.solver.layer_division.divide import Partition, solve_partition


class BestDivisions:
    """
    The divisions of a partition problem, the one with the least bound first.

    ``stages``, ``edge``, ``tail``, ``later``: as ``taut.solver.layer_division.divide.solve_partition`` takes them.
    """

    def __init__(self, stages: PartitionProblem, edge: Floats, tail: Floats, later: LaterStages) -> None:
        self._stages, self._edge, self._tail, self._later = stages, edge, tail, later
        self._heap: list[tuple[float, int, Ints, Partition]] = []
        self._number = count()
        least_and_most = np.array([[1, stages.num_layers]] * stages.pp)
        for box in least_and_most[None] if stages.families is None else stages.families:
            self._add(box, np.inf)

    @property
    def least(self) -> float:
        """Seconds that all divisions take at least that are not named yet; infinite where there are none."""
        return self._heap[0][0] if self._heap else np.inf

    def next(self, limit: float) -> Partition | None:
        """
        Name the next division.

        ``limit``: seconds; divisions whose bound is no less are of no use, now and later. Returns the division with its
        bound; None where none is below the limit.
        """
        if self.least >= limit:
            return None
        seconds, _, box, found = heapq.heappop(self._heap)
        for part in _others(box, found.division.layers):
            self._add(part, limit, seconds)
        return found

    def _add(self, box: Ints, limit: float, least: float = -np.inf) -> None:
        if not box[:, 0].sum() <= self._stages.num_layers <= box[:, 1].sum():
            return
        of_box = replace(self._stages, families=box[None])
        found = solve_partition(of_box, self._edge, self._tail, later=self._later, limit=limit)
        if found.feasible and found.seconds < limit:
            heapq.heappush(self._heap, (max(found.seconds, least), next(self._number), box, found))


def _others(box: Ints, layers: Ints) -> Iterator[Ints]:
    """The boxes (1) of all other divisions of a box."""
    for x in range(len(box) - 1):
        for least, most in ((box[x, 0], layers[x] - 1), (layers[x] + 1, box[x, 1])):
            if least <= most:
                part = box.copy()
                part[:x] = layers[:x, None]
                part[x] = least, most
                yield part
