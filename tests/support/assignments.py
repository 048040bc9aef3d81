"""Small instances of the quadratic assignment problem, random of every kind and nug12, and their optimum."""

from itertools import permutations

import numpy as np

from taut.formulations.assignment import QuadraticAssignment

KINDS = ["integers", "signed integers", "sparse", "symmetric", "half symmetric", "clones", "floats", "signed floats"]

# Flow of nug12, QAPLIB (Nugent, Vollmann and Ruml, 1968): upper triangle, row by row.
NUG12 = """
    5 2 4 1 0 0 6 2 1 1 1
    3 0 2 2 2 0 4 5 0 0
    0 0 0 0 5 5 2 2 2
    5 2 2 10 0 0 5 5
    10 0 0 0 5 1 1
    5 1 1 5 4 0
    10 5 2 3 3
    0 0 5 0
    0 10 10
    5 0
    2
"""


def random_assignment(kind: str, size: int, seed: int) -> QuadraticAssignment:
    """Instance of one of KINDS, with filled diagonals unless symmetric."""
    rng = np.random.default_rng([seed, size])
    flow, distance = rng.integers(-9 if kind.startswith("signed") else 0, 10, (2, size, size)).astype(float)
    if kind.endswith("floats"):
        flow, distance = flow * rng.random((size, size)), distance * rng.random((size, size))
    if kind == "sparse":
        flow, distance = flow * (rng.random((size, size)) < 0.3), distance * (rng.random((size, size)) < 0.6)
    if kind == "symmetric":
        flow, distance = np.triu(flow, 1) + np.triu(flow, 1).T, np.triu(distance, 1) + np.triu(distance, 1).T
    if kind == "half symmetric":
        flow, distance = (flow + flow.T, distance) if seed % 2 else (flow, distance + distance.T)
    if kind == "clones":
        flow, distance = np.where(np.add.outer(np.arange(size), np.arange(size)) < size - 1, 3.0, 1.0), distance
    return QuadraticAssignment(flow, distance, kind)


def optimum(problem: QuadraticAssignment) -> float:
    """Cost of the best of all permutations."""
    return min(problem.cost(permutation) for permutation in permutations(range(problem.size)))


def nug12() -> QuadraticAssignment:
    """QAPLIB's nug12: items on a grid of 3 x 4, Manhattan distances."""
    row, column = np.divmod(np.arange(12), 4)
    distance = abs(np.subtract.outer(row, row)) + abs(np.subtract.outer(column, column))
    flow = np.zeros((12, 12))
    flow[np.triu_indices(12, 1)] = [int(word) for word in NUG12.split()]
    return QuadraticAssignment(flow + flow.T, distance.astype(float), "nug12")
