r"""
Linear assignment inside compiled loops: the least cost, and reduced costs that are not negative.

With costs :math:`c_{ij}` of row i on column j, :math:`0 \le i, j < m`, and any numbers u and v,

.. math:: \sum_i c_{i \sigma_i} = \sum_i u_i + \sum_j v_j + \sum_i (c_{i \sigma_i} - u_i - v_j)
    \quad \text{for every permutation } \sigma. \tag{1}

The kernel replaces c by :math:`c_{ij} - u_i - v_j \ge 0`, (2), with u and v that solve the dual problem, so that their
sum is the least cost. Rows and columns give up their minima, zeros are matched greedily, and shortest augmenting paths
[1]_ match the rest. Sums of integers that floats hold exactly stay exact: nothing is multiplied or divided.

References
----------
.. [1] Jonker, R. and Volgenant, A. (1987). A shortest augmenting path algorithm for dense and sparse linear assignment
       problems. Computing 38: 325-340.
"""

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_with

_MINIMA = {"nnan", "nsz"}  # Lets the compiler vectorise minima; sums keep their order.


@jit
def workspace(size: int) -> tuple[Floats, Ints]:
    """Arrays that ``reduce_costs`` uses for up to this many rows: duals, distances and what is shut; matches."""
    return np.zeros((4, size)), np.zeros((3, size), dtype=np.int64)


@jit_with(_MINIMA)
def _take_minima(costs: Floats, size: int) -> float:
    """Subtract from rows, then from columns, their minima; the sum of all of them."""
    total, columns, least = 0.0, 0.0, np.full(size, np.inf)
    for i in range(size):
        row, smallest = costs[i], np.inf
        for j in range(size):
            smallest = min(smallest, row[j])
        total += smallest
        for j in range(size):
            row[j] -= smallest
            least[j] = min(least[j], row[j])
    for j in range(size):
        columns += least[j]
    # They are not negative, and so all zero if their sum is.
    if columns != 0.0:
        for i in range(size):
            row = costs[i]
            for j in range(size):
                row[j] -= least[j]
    return total + columns


@jit
def _match_zeros(costs: Floats, size: int, column_of: Ints, row_of: Ints) -> int:
    """Match rows greedily to columns of reduced cost zero, and count the rows left over."""
    left = 0
    row_of[:size] = -1
    for i in range(size):
        column_of[i] = -1
        row = costs[i]
        for j in range(size):
            if row[j] == 0.0 and row_of[j] < 0:
                row_of[j], column_of[i] = i, j
                break
        else:
            left += 1
    return left


@jit_with(_MINIMA)
def _augment(costs: Floats, size: int, start: int, reals: Floats, marks: Ints) -> float:
    """Match one more row along a shortest path, and move the duals; what they gain."""
    u, v, distance, shut = reals[0], reals[1], reals[2], reals[3]
    column_of, row_of, before = marks[0], marks[1], marks[2]
    row, offset = costs[start], -u[start]
    for j in range(size):
        distance[j], before[j], shut[j] = row[j] - v[j] + offset, start, 0.0
    # Columns that are done are infinitely far: loops without branches are compiled to vectors.
    while True:
        least, end = np.inf, 0
        for j in range(size):
            least = min(least, distance[j] + shut[j])
        while distance[end] + shut[end] != least:
            end += 1
        if row_of[end] < 0:
            break
        shut[end] = np.inf
        i = row_of[end]
        row, offset = costs[i], least - u[i]
        for j in range(size):
            reach = row[j] - v[j] + offset + shut[j]
            shorter = reach < distance[j]
            distance[j] = reach if shorter else distance[j]
            before[j] = i if shorter else before[j]
    for j in range(size):
        if shut[j] > 0.0:
            v[j] += distance[j] - least
            u[row_of[j]] += least - distance[j]
    u[start] += least
    while True:
        i = before[end]
        row_of[end] = i
        end, column_of[i] = column_of[i], end
        if i == start:
            return float(least)


@jit_with(_MINIMA)
def reduce_costs(costs: Floats, size: int, reals: Floats, marks: Ints) -> float:
    """
    Replace costs by the reduced costs (2) and return the least cost of an assignment.

    ``costs``: costs of rows on columns (at least m, at least m), overwritten in its first m rows and columns; ``size``:
    number m of rows and columns, at least one; ``reals``, ``marks``: from ``workspace`` for at least m rows. Afterwards
    ``marks[0, i]`` is the column of row i.
    """
    total = _take_minima(costs, size)
    column_of, row_of = marks[0], marks[1]
    if _match_zeros(costs, size, column_of, row_of) == 0:
        return total
    u, v = reals[0], reals[1]
    u[:size] = 0.0
    v[:size] = 0.0
    for i in range(size):
        if column_of[i] < 0:
            total += _augment(costs, size, i, reals, marks)
    for i in range(size):
        row, u_i = costs[i], u[i]
        for j in range(size):
            row[j] = row[j] - u_i - v[j]
    return total
