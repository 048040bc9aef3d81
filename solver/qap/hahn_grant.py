r"""
Lawler's form of quadratic assignment, costs of assignments and of pairs of assignments [1]_, and its dual ascent.

With :math:`x_{ik} = 1` where item i takes location k, every cost is, for a constant c,

.. math:: z = c + \sum_{i, k} \ell_{ik} x_{ik} + \sum_{\{(i, k), (j, l)\}} q_{ikjl} \, x_{ik} x_{jl},
    \qquad i \ne j, \; k \ne l, \tag{1}

at first with :math:`c = 0`, :math:`\ell_{ik} = f_{ii} d_{kk}` and :math:`q_{ikjl} = f_{ij} d_{kl} + f_{ji} d_{lk}`, one
entry for each unordered pair, held twice. Negative entries are avoided: every permutation pays for n single assignments
and n (n - 1) / 2 pairs, so that a constant may be moved from all of either to c. All of it is scaled by a power of two
S and rounded down to integers that floats hold exactly, with room for sums:

.. math:: 4 S n^2 \max_{i, j} |f_{ij}| \, \max_{k, l} |d_{kl}| \le 2^{46}. \tag{2}

Bounds on the rounded problem are then free of rounding errors, and :math:`z \ge L / S`, (3), for any bound L of it.
On data of integers that leave room for it nothing is rounded down, S times a cost is an integer.

Fixing item i at location k leaves a problem of one item less, with :math:`c + \ell_{ik}` for c and
:math:`\ell_{jl} + q_{ikjl}` for :math:`\ell_{jl}`, (4).

The bound of Gilmore and Lawler takes no ascent. Sets, data and the cost :math:`z(\pi)` of a permutation are those of
``taut.formulations.assignment``. Write :math:`\langle u, v \rangle_-` for the smallest scalar product that
two vectors have in any order of their entries; it pairs one in ascending with the other in descending order, whatever
the signs.

An item i at location k pays at least the smallest scalar product of what leaves i with what leaves k, the diagonals
apart, and the items take different locations, so that an assignment problem bounds the cost [2]_:

.. math:: z(\pi) \ge \min_\sigma \sum_i \ell_{i \sigma_i}, \qquad
    \ell_{ik} = f_{ii} d_{kk} + \langle f_{i \cdot}, d_{k \cdot} \rangle_-. \tag{5}

The cost is the same with both matrices transposed, and if one of them is symmetric, with both replaced by their means
with their transposes:

.. math:: z(\pi) = \sum_{i, j} f_{ji} \, d_{\pi_j \pi_i}
    = \sum_{i, j} \tfrac12 (f_{ij} + f_{ji}) \, \tfrac12 (d_{\pi_i \pi_j} + d_{\pi_j \pi_i})
    \text{ if } f = f^T \text{ or } d = d^T. \tag{6}

The costs c, l and q of (1) may be moved as long as the cost of every permutation stays what it is [3]_. One round of
the dual ascent of Hahn and Grant

(7) spreads every :math:`\ell_{ik}` over the rows :math:`j \ne i` of its q, in random shares that sum to it, because
    exactly one pair of each row is paid for if :math:`x_{ik} = 1`;
(8) visits every (i, k) in a random order, solves the assignment problem over :math:`q_{ikjl}, j \ne i, l \ne k`, leaves
    its reduced costs as q and adds its value to :math:`\ell_{ik}`; one entry serves both (i, k) and (j, l), so that
    later visits find what earlier ones left;
(9) solves the assignment problem over l, leaves its reduced costs as l and adds its value to c.

After each round l and q are not negative and c is a lower bound, one that approaches the bound of the first level of
the reformulation-linearisation technique. The ascent stalls short of it; taking a small part of c back,

.. math:: c \leftarrow c - m b, \quad \ell_{ik} \leftarrow \ell_{ik} + b, \tag{11}

sets it going again. Whoever only looks for permutations that cost at most a cutoff U may drop pairs
with :math:`c + q_{ikjl} > U` and assignments with :math:`c + \ell_{ik} > U`, (10): they are priced beyond U, and
:math:`\min(c, U)` remains a bound. All numbers are integers in floats, so that nothing is lost to rounding.

Linear assignment inside compiled loops yields the least cost, and reduced costs that are not negative. With costs
:math:`c_{ij}` of row i on column j, :math:`0 \le i, j < m`, and any numbers u and v,

.. math:: \sum_i c_{i \sigma_i} = \sum_i u_i + \sum_j v_j + \sum_i (c_{i \sigma_i} - u_i - v_j)
    \quad \text{for every permutation } \sigma. \tag{12}

The kernel replaces c by :math:`c_{ij} - u_i - v_j \ge 0`, (13), with u and v that solve the dual problem, so that their
sum is the least cost. Rows and columns give up their minima, zeros are matched greedily, and shortest augmenting paths
[4]_ match the rest. Sums of integers that floats hold exactly stay exact: nothing is multiplied or divided.

References
----------
.. [1] Lawler, E.L. (1963). The quadratic assignment problem. Management Science 9: 586-599.
.. [2] Gilmore, P.C. (1962). Optimal and suboptimal algorithms for the quadratic assignment problem. Journal of
       SIAM 10: 305-313. Lawler, E.L. (1963). The quadratic assignment problem. Management Science 9: 586-599.
.. [3] Hahn, P. and Grant, T. (1998). Lower bounds for the quadratic assignment problem based upon a dual formulation.
       Operations Research 46: 912-922.
.. [4] Jonker, R. and Volgenant, A. (1987). A shortest augmenting path algorithm for dense and sparse linear assignment
       problems. Computing 38: 325-340.
"""

import math
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from taut.data.arrays import Bits, Floats, Ints
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.compiled import jit, jit_inside, jit_with
from taut.solver.qap.swap_neighbourhood import draw, draw_below


class LawlerForm(NamedTuple):
    """The costs (1) of m items on m locations: c, l (m, m) and q (m^2, m^2) with (i, k) in row i m + k."""

    constant: float
    linear: Floats
    quadratic: Floats


def scale_of(problem: QuadraticAssignment) -> float:
    """Largest power of two S that keeps (2)."""
    largest = 4 * problem.size**2 * float(np.abs(problem.flow).max()) * float(np.abs(problem.distance).max())
    return 2.0 ** min(math.floor(46 - math.log2(largest)), 1000) if largest > 0 else 1.0


def is_exact(problem: QuadraticAssignment, scale: float) -> bool:
    """Whether S times every product of two entries is an integer, so that (1) is the cost itself."""
    return problem.integral and scale >= 1


def rounding(problem: QuadraticAssignment, scale: float) -> float:
    """Most that (1) falls below S times the cost of a permutation: two units for each product."""
    return 0.0 if is_exact(problem, scale) else 4.0 * problem.size**2


def lawler_form(problem: QuadraticAssignment, scale: float) -> LawlerForm:
    """A problem as (1), scaled by S and rounded down: 8 n^4 bytes of integers that are not negative; (3) holds."""
    size = problem.size
    less = 0.0 if is_exact(problem, scale) else 1.0
    flow, distance = problem.flow * scale, problem.distance
    linear = np.floor(np.outer(flow.diagonal(), distance.diagonal())) - less
    quadratic = np.empty((size, size, size, size))
    _fill(quadratic, flow.copy(), distance.copy(), less)
    least_single, least_pair = min(0.0, float(linear.min())), min(0.0, float(quadratic.min()))
    linear -= least_single
    # Entries with i = j or k = l are never read for what they are.
    quadratic -= least_pair
    constant = size * least_single + size * (size - 1) / 2 * least_pair
    return LawlerForm(constant, linear, quadratic.reshape(size * size, size * size))


@jit
def _fill(quadratic: Floats, flow: Floats, distance: Floats, less: float) -> None:
    """Fill q of (1), with zeros where i = j or k = l."""
    size = len(flow)
    for i in range(size):
        for k in range(size):
            for j in range(size):
                out, there, back = quadratic[i, k, j], flow[i, j], flow[j, i]
                if i == j:
                    out[:] = 0.0
                    continue
                for other in range(size):
                    out[other] = np.floor(there * distance[k, other]) + np.floor(back * distance[other, k]) - 2 * less
                out[k] = 0.0


@jit
def fix(linear: Floats, quadratic: Floats, item: int, location: int, less_single: Floats, less_paired: Floats) -> None:
    """Fill the costs of one item less, (4): the item at the location, the others in their order."""
    size = len(linear)
    fixed = quadratic[item * size + location]
    for i in range(size - 1):
        whole_i = i + (i >= item)
        for k in range(size - 1):
            whole_k = k + (k >= location)
            less_single[i, k] = linear[whole_i, whole_k] + fixed[whole_i * size + whole_k]
            row, out = quadratic[whole_i * size + whole_k], less_paired[i * (size - 1) + k]
            for j in range(size - 1):
                begin, whole = j * (size - 1), (j + (j >= item)) * size
                for other in range(location):
                    out[begin + other] = row[whole + other]
                for other in range(location, size - 1):
                    out[begin + other] = row[whole + other + 1]


def gilmore_lawler(problem: QuadraticAssignment) -> float:
    """
    The bound (5) in the unit of flow times distance, over columns too, (6), if no matrix is symmetric.

    Rounding is taken off. The bound of integers is raised to an integer, of symmetric ones with zero diagonals to an
    even one. It takes :math:`O(n^3)` and is weak where the flow is dense.
    """
    flow, distance = problem.flow, problem.distance
    symmetric = [np.array_equal(matrix, matrix.T) for matrix in (flow, distance)]
    if any(symmetric):
        bound = _row_bound((flow + flow.T) / 2, (distance + distance.T) / 2)
    else:
        bound = max(_row_bound(flow, distance), _row_bound(flow.T, distance.T))
    bound -= _rounding(problem)
    if problem.integral:
        step = 2 if all(symmetric) and not flow.diagonal().any() and not distance.diagonal().any() else 1
        bound = float(step * math.ceil((bound - 1e-6) / step))
    return max(bound, 0.0) if flow.min() >= 0 and distance.min() >= 0 else bound


def _row_bound(flow: Floats, distance: Floats) -> float:
    """Value of the assignment problem (5), up to rounding errors."""
    size = len(flow)
    others = ~np.eye(size, dtype=bool)
    rising = np.sort(flow[others].reshape(size, size - 1), axis=1)
    falling = np.sort(distance[others].reshape(size, size - 1), axis=1)[:, ::-1]
    least = rising @ falling.T + np.outer(flow.diagonal(), distance.diagonal())
    return float(least[linear_sum_assignment(least)].sum())


def _rounding(problem: QuadraticAssignment) -> float:
    """Most that rounding errors can add to (5): nothing on integers that floats hold exactly."""
    size, largest = problem.size, float(np.abs(problem.distance).max())
    scale = float(np.abs(problem.flow).sum(axis=1).max()) * largest
    if problem.integral and 4 * size**2 * scale < 2**52:
        return 0.0
    # The assignment comes from n augmentations, each of which adds up to n entries to each of 2 n dual values.
    return 8 * size**3 * float(np.finfo(np.float64).eps) * scale


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
    """Leave reduced costs (13) in the first m rows and columns, columns in ``marks[0]``; returns the least cost."""
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
    """Move l into q, (7); assignments that cost too much are dropped, (10)."""
    size = len(linear)
    shares = np.empty((size, size))
    for i in range(size):
        total = 0.0
        for j in range(size):
            shares[i, j] = (draw(bits) >> np.uint64(11)) * 2.0**-53
            shares[i, j] = shares[i, j] ** 2 + 1e-3 if i != j else 0.0
            total += shares[i, j]
        for j in range(size):
            shares[i, j] /= total
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
    """Visit some of the assignments in their order, (8); pairs that cost too much are dropped, (10)."""
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
    Raise the bound round by round without end, and take some back now and then, (11), in place.

    Permutations above the scaled ``cutoff`` do not matter, (10). Yields the costs after every kernel call: c is a
    scaled bound, and whole with l and q unless the call stopped inside a round, where l lacks step (9).
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
