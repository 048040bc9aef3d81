r"""
Small quadratic assignment problems, solved in one compiled call.

Costs are those of ``taut.solver.qap.lawler_form``, scaled integers. Depth first: a node is bounded by a few rounds of
``taut.solver.qap.hahn_grant``; if its bound c does not exceed the cutoff U, it branches on the row (item) or column
(location) that the reduced costs l of single assignments favour,

.. math:: \max \; \sum_k \min\{ \tfrac{\ell_{ik}}{U - c}, 1 \}
    \quad \text{over rows } i \text{ and, likewise, columns,} \tag{1}

where an assignment that a symmetry makes needless counts as one. Only assignments with :math:`c + \ell_{ik} \le U`
are followed, in ascending order. Each permutation that is found lowers U below its cost.
"""

import numpy as np

from taut.data.arrays import Bits, Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.qap.hahn_grant import ascend
from taut.solver.qap.lawler_form import fix


@jit
def branches(
    constant: float, linear: Floats, cutoff: float, item_needed: Flags, location_needed: Flags
) -> tuple[Ints, Ints, Floats]:
    """
    Choose a row or column by (1), and list what to follow in ascending order of bounds.

    ``constant``, ``single``, ``cutoff``: c, l (m, m) and U; ``item_needed``, ``location_needed``: whether a symmetry
    makes it necessary to try an item at a given location (m,), or a location for an item. Returns items, locations and
    bounds of the children.
    """
    size, slack = len(linear), max(cutoff - constant, 1.0)
    best, line, by_item = -1.0, 0, True
    for i in range(size):
        row, column = 0.0, 0.0
        for k in range(size):
            row += min(linear[i, k] / slack, 1.0) if location_needed[k] else 1.0
            column += min(linear[k, i] / slack, 1.0) if item_needed[k] else 1.0
        if row > best:
            best, line, by_item = row, i, True
        if column > best:
            best, line, by_item = column, i, False
    items, locations, bounds = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64), np.empty(size)
    count = 0
    for k in range(size):
        price = linear[line, k] if by_item else linear[k, line]
        if (location_needed[k] if by_item else item_needed[k]) and constant + price <= cutoff:
            items[count], locations[count] = (line, k) if by_item else (k, line)
            bounds[count] = constant + price
            count += 1
    order = np.argsort(bounds[:count])
    return items[order], locations[order], bounds[order]


@jit
def complete(
    constant: float, linear: Floats, quadratic: Floats, cutoff: float, rounds: int, patience: float, bits: Bits
) -> tuple[float, Ints]:
    """
    Find the least cost that does not exceed the cutoff.

    ``constant``, ``single``, ``paired``: costs (1) of ``taut.solver.qap.lawler_form``, of up to about ten items;
    ``rounds``, ``patience``, ``bits``: as for ``ascend``, at every node. Returns least cost and the location of every
    item; infinity and -1 where all costs exceed the cutoff.
    """
    size = len(linear)
    least, best = np.inf, np.full(size, -1)
    every = np.ones(size, dtype=np.bool_)
    offsets = np.zeros(size + 1, dtype=np.int64)
    for depth in range(size):
        offsets[depth + 1] = offsets[depth] + (size - depth) ** 4
    singles, pairs = np.zeros((size, size * size)), np.zeros(offsets[size])
    constants, children, turn = np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    items, locations = np.zeros((size, size), dtype=np.int64), np.zeros((size, size), dtype=np.int64)
    bounds = np.zeros((size, size))
    singles[0, : size * size] = linear.copy().reshape(size * size)
    pairs[: size**4] = quadratic.copy().reshape(size**4)
    constants[0] = constant
    depth, fresh = 0, True
    while depth >= 0:
        left = size - depth
        own = singles[depth, : left * left].reshape(left, left)
        both = pairs[offsets[depth] : offsets[depth + 1]].reshape(left * left, left * left)
        if fresh:
            constants[depth] = ascend(constants[depth], own, both, cutoff, rounds, patience, bits)
            children[depth], turn[depth], fresh = 0, 0, False
            if constants[depth] <= cutoff and left == 1:
                least, cutoff = constants[depth], constants[depth] - 1
                items[depth, 0], locations[depth, 0] = 0, 0
                best = _unwind(items, locations, turn, size)
            elif constants[depth] <= cutoff:
                rows, columns, values = branches(constants[depth], own, cutoff, every[:left], every[:left])
                children[depth] = len(rows)
                items[depth, : len(rows)], locations[depth, : len(rows)] = rows, columns
                bounds[depth, : len(rows)] = values
        elif turn[depth] < children[depth] and bounds[depth, turn[depth]] <= cutoff:
            which, less = turn[depth], left - 1
            fix(
                own,
                both,
                items[depth, which],
                locations[depth, which],
                singles[depth + 1, : less * less].reshape(less, less),
                pairs[offsets[depth + 1] : offsets[depth + 2]].reshape(less * less, less * less),
            )
            constants[depth + 1] = bounds[depth, which]
            depth, fresh = depth + 1, True
        else:
            depth -= 1
            if depth >= 0:
                turn[depth] += 1
    return least, best


@jit
def _unwind(items: Ints, locations: Ints, turn: Ints, size: int) -> Ints:
    """Permutation at the end of a path of choices, each counted among what earlier ones left."""
    left_items, left_locations = np.arange(size), np.arange(size)
    permutation = np.empty(size, dtype=np.int64)
    for depth in range(size):
        i, k = items[depth, turn[depth]], locations[depth, turn[depth]]
        permutation[left_items[i]] = left_locations[k]
        left_items = np.concatenate((left_items[:i], left_items[i + 1 :]))
        left_locations = np.concatenate((left_locations[:k], left_locations[k + 1 :]))
    return permutation
