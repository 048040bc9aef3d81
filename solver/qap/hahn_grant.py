r"""
Dual ascent on quadratic assignment, after Hahn and Grant.

The costs c, l and q are those of ``taut.solver.qap.lawler_form`` (1). They may be moved as long as the cost of every
permutation stays what it is [1]_. One round of the ascent

(1) spreads every :math:`\ell_{ik}` over the rows :math:`j \ne i` of its q, in random shares that sum to it, because
    exactly one pair of each row is paid for if :math:`x_{ik} = 1`;
(2) visits every (i, k) in a random order, solves the assignment problem over :math:`q_{ikjl}, j \ne i, l \ne k`, leaves
    its reduced costs as q and adds its value to :math:`\ell_{ik}`; one entry serves both (i, k) and (j, l), so that
    later visits find what earlier ones left;
(3) solves the assignment problem over l, leaves its reduced costs as l and adds its value to c.

After each round l and q are not negative and c is a lower bound, one that approaches the bound of the first level of
the reformulation-linearisation technique. The ascent stalls short of it; taking a small part of c back,

.. math:: c \leftarrow c - m b, \quad \ell_{ik} \leftarrow \ell_{ik} + b, \tag{5}

sets it going again. Whoever only looks for permutations that cost at most a cutoff U may drop pairs
with :math:`c + q_{ikjl} > U` and assignments with :math:`c + \ell_{ik} > U`, (4): they are priced beyond U, and
:math:`\min(c, U)` remains a bound. All numbers are integers in floats, so that nothing is lost to rounding.

Linear assignment inside compiled loops yields the least cost, and reduced costs that are not negative. With costs
:math:`c_{ij}` of row i on column j, :math:`0 \le i, j < m`, and any numbers u and v,

.. math:: \sum_i c_{i \sigma_i} = \sum_i u_i + \sum_j v_j + \sum_i (c_{i \sigma_i} - u_i - v_j)
    \quad \text{for every permutation } \sigma. \tag{6}

The kernel replaces c by :math:`c_{ij} - u_i - v_j \ge 0`, (7), with u and v that solve the dual problem, so that their
sum is the least cost. Rows and columns give up their minima, zeros are matched greedily, and shortest augmenting paths
[2]_ match the rest. Sums of integers that floats hold exactly stay exact: nothing is multiplied or divided.

References
----------
.. [1] Hahn, P. and Grant, T. (1998). Lower bounds for the quadratic assignment problem based upon a dual formulation.
       Operations Research 46: 912-922.
.. [2] Jonker, R. and Volgenant, A. (1987). A shortest augmenting path algorithm for dense and sparse linear assignment
       problems. Computing 38: 325-340.
"""

from collections.abc import Iterator
from itertools import count

import numpy as np

from taut.data.arrays import Bits, Floats, Ints
from taut.formulations.compiled import jit, jit_inside, jit_with
from taut.solver.qap.lawler_form import LawlerForm
from taut.solver.qap.swap_neighbourhood import draw, draw_below

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


@jit_inside
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
    """Leave reduced costs (7) in the first m rows and columns, columns in ``marks[0]``; returns the least cost."""
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


_BACK = 0.01  # Part of c taken back at first; it shrinks where that no longer pays.
_PERIOD = 10  # Rounds between.
_WORTH = 0.002  # Part of the missing rest that as many rounds must gain.


@jit
def spread(constant: float, linear: Floats, quadratic: Floats, cutoff: float, bits: Bits) -> None:
    """Move l into q, (1); assignments that cost too much are dropped, (4)."""
    size = len(linear)
    shares = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            shares[i, j] = (draw(bits) >> np.uint64(11)) * 2.0**-53
            shares[i, j] = shares[i, j] ** 2 + 1e-3 if i != j else 0.0
        shares[i] /= shares[i].sum()
    # What (i, k) gives to row j: whole numbers, the rest to the last row.
    gifts, slack = np.zeros((size * size, size)), cutoff - constant
    for i in range(size):
        for k in range(size):
            row, left = gifts[i * size + k], linear[i, k]
            if left > slack:
                row[:] = slack + 1
                linear[i, k] = 0.0
                continue
            last = size - 1 if i != size - 1 else size - 2
            for j in range(size):
                row[j] = np.floor(linear[i, k] * shares[i, j])
                left -= row[j]
            row[last] += left
            linear[i, k] = 0.0
    for i in range(size):
        for k in range(size):
            costs, given = quadratic[i * size + k], gifts[i * size + k]
            for j in range(size):
                if j != i:
                    for other in range(size):
                        costs[j * size + other] += given[j] + gifts[j * size + other, i]


@jit
def visit(constant: float, linear: Floats, quadratic: Floats, cutoff: float, order: Ints, begin: int, end: int) -> None:
    """Visit some of the assignments in their order, (2); pairs that cost too much are dropped, (4)."""
    size = len(linear)
    less, slack, beyond = size - 1, cutoff - constant, 2 * (cutoff - constant) + 1
    costs = np.empty((less, less))
    reals, marks = workspace(size)
    for turn in range(begin, end):
        which = order[turn]
        item, location = which // size, which % size
        row = quadratic[which]
        for i in range(less):
            out, start = costs[i], (i + (i >= item)) * size
            for k in range(location):
                out[k] = row[start + k]
            for k in range(location, less):
                out[k] = row[start + k + 1]
            for k in range(less):
                out[k] = out[k] if out[k] <= slack else beyond
        linear[item, location] += min(reduce_costs(costs, less, reals, marks), beyond)
        for i in range(less):
            out, start = costs[i], (i + (i >= item)) * size
            for k in range(location):
                row[start + k] = out[k]
                quadratic[start + k, which] = out[k]
            for k in range(location, less):
                row[start + k + 1] = out[k]
                quadratic[start + k + 1, which] = out[k]


@jit
def shuffled(length: int, bits: Bits) -> Ints:
    """Random order of 0, ..., length - 1."""
    order = np.arange(length)
    for i in range(length - 1, 0, -1):
        j = draw_below(bits, i + 1)
        order[i], order[j] = order[j], order[i]
    return order


@jit
def ascend(
    constant: float, linear: Floats, quadratic: Floats, cutoff: float, rounds: int, patience: float, bits: Bits
) -> float:
    """The bound c after whole rounds on l and q, in place, until it exceeds the cutoff U or rounds gain too little."""
    size = len(linear)
    reals, marks = workspace(size)
    constant += reduce_costs(linear, size, reals, marks)
    for _ in range(rounds if size > 1 else 0):
        if constant > cutoff:
            break
        before = constant
        spread(constant, linear, quadratic, cutoff, bits)
        visit(constant, linear, quadratic, cutoff, shuffled(size * size, bits), 0, size * size)
        constant += reduce_costs(linear, size, reals, marks)
        if cutoff - constant > patience * (constant - before):
            break
    return constant


def ascent(costs: LawlerForm, cutoff: float, seed: int) -> Iterator[LawlerForm]:
    """
    Raise the bound round by round, without end, and take some of it back now and then, (5).

    ``costs``: l and q are changed in place; ``cutoff``: scaled cost U above which permutations do not matter, (4);
    whoever wants plain bounds gives a large one; ``seed``: of the shares and orders. Yields the costs after every
    kernel call of well below a second: c is a scaled bound, and whole with l and q unless the call stopped inside a
    round, where l still lacks step (3).
    """
    size, constant = len(costs.linear), costs.constant
    bits = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
    portion = max(1, 30_000_000 // size**2)
    constant = ascend(constant, costs.linear, costs.quadratic, cutoff, 0, 0.0, bits)
    best, mark, back = constant, constant, _BACK
    for done in count(1):
        yield costs._replace(constant=constant)
        spread(constant, costs.linear, costs.quadratic, cutoff, bits)
        order = shuffled(size * size, bits)
        for begin in range(0, size * size, portion):
            end = min(begin + portion, size * size)
            visit(constant, costs.linear, costs.quadratic, cutoff, order, begin, end)
            if end < size * size:
                yield costs._replace(constant=constant)
        constant = ascend(constant, costs.linear, costs.quadratic, cutoff, 0, 0.0, bits)
        best = max(best, constant)
        if done % _PERIOD == 0 and constant <= cutoff:
            back, mark = (back if best - mark > _WORTH * (cutoff - best) else 0.95 * back), best
            yield costs._replace(constant=constant)
            share = float(np.floor(max(constant, 0.0) * back / size))
            costs.linear[:] += share
            constant -= share * size
