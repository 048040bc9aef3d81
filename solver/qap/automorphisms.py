r"""
Automorphisms of a matrix, for orbit pruning [1]_: permutations of rows and columns that leave it as it is.

A permutation g is an automorphism of a if

.. math:: a_{g(i) g(j)} = a_{ij} \quad \text{for all } i, j. \tag{1}

Applied to the locations of any placement, an automorphism of the distances leaves the cost as it is, and so does one of
the flow applied to the items. Where some indices must stay, those automorphisms that fix each of them form a group, and
of the other indices only one in each orbit of it need be tried.

Indices whose exchange leaves the matrix as it is are twins. The group consists of all exchanges of twins and of the
automorphisms that keep the order within every class of twins, (2); only the latter are listed.

References
----------
.. [1] Margot, F. (2002). Pruning by isomorphism in branch-and-cut. Mathematical Programming 94: 71-90.
"""

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.qap.swap_neighbourhood import twins

_MOST_LISTED = 4096
"""Automorphisms that are listed: each node of the tree goes through all of them."""
_MOST_TRIED = 2_000_000
"""Steps of the search for them, a fraction of a second."""


class AutomorphismGroup:
    """
    The automorphisms of a matrix, as far as they are few enough to be listed.

    ``matrix``: square (n, n).
    """

    def __init__(self, matrix: Floats) -> None:
        size = len(matrix)
        self._kind = twins(np.hstack((matrix, matrix.T)), matrix.diagonal().copy())
        turn = np.array([int(np.sum(self._kind[:i] == self._kind[i])) for i in range(size)])
        listed = _list_automorphisms(np.ascontiguousarray(matrix), self._kind, turn, _MOST_LISTED, _MOST_TRIED)
        # A part of a group is no group; without the list, exchanges of twins remain.
        self._listed = listed if len(listed) else np.arange(size)[None, :]
        self._rigid = len(self._listed) == 1 and not turn.any()

    @property
    def listed(self) -> int:
        """Number of automorphisms (2)."""
        return len(self._listed)

    def orbit_representatives(self, fixed: Ints) -> Flags:
        """Whether an index (n,) is the first of its orbit by the automorphisms that leave the fixed ones."""
        size = len(self._kind)
        if self._rigid:
            chosen = np.ones(size, dtype=np.bool_)
            chosen[fixed] = False
            return chosen
        first = np.full(size, size)
        free = np.setdiff1d(np.arange(size), fixed)
        np.minimum.at(first, self._kind[free], free)
        staying = self._listed[np.all(self._listed[:, fixed] == fixed, axis=1)]
        chosen = np.zeros(size, dtype=np.bool_)
        chosen[free] = first[self._kind[staying[:, free]]].min(axis=0) == free
        return chosen


@jit
def _list_automorphisms(matrix: Floats, kind: Ints, turn: Ints, most: int, tries: int) -> Ints:
    """All automorphisms (2), one a row; no row if there are too many or the search takes too long."""
    size = len(matrix)
    found = np.empty((most, size), dtype=np.int64)
    count, depth = 0, 0
    image, taken = np.full(size, -1), np.zeros(size, dtype=np.bool_)
    while depth >= 0:
        if depth == size:
            if count == most:
                return found[:0]
            found[count] = image
            count += 1
            depth -= 1
            continue
        if image[depth] >= 0:
            taken[image[depth]] = False
        image[depth] += 1
        while image[depth] < size:
            tries -= 1
            if tries < 0:
                return found[:0]
            if not taken[image[depth]] and _fits(matrix, kind, turn, image, depth):
                break
            image[depth] += 1
        if image[depth] == size:
            image[depth] = -1
            depth -= 1
            continue
        taken[image[depth]] = True
        depth += 1
    return found[:count]


@jit
def _fits(matrix: Floats, kind: Ints, turn: Ints, image: Ints, index: int) -> bool:
    """Whether the image of an index agrees with (1) and (2) as far as the images before it go."""
    there = image[index]
    if matrix[index, index] != matrix[there, there] or turn[index] != turn[there]:
        return False
    if turn[index] > 0 and kind[there] != image[kind[index]]:
        return False
    for other in range(index):
        at = image[other]
        if matrix[index, other] != matrix[there, at] or matrix[other, index] != matrix[at, there]:
            return False
    return True
