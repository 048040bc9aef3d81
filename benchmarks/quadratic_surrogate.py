"""
Placement by scipy's solvers for quadratic assignment (``taut.formulations.placement``).

Their objective is a sum in the place of the maxima of the step time, which then prices what is found.
"""

import time

import numpy as np
from scipy.optimize import quadratic_assignment

from benchmarks.pipette_annealing import identity
from taut.data.arrays import Ints
from taut.formulations.placement import PlacementProblem, placement_assignment

MOST_FAQ, MOST_TWO_OPT = 512, 128
"""Positions beyond which scipy takes minutes."""


def scipy_placement(given: PlacementProblem) -> tuple[float, float]:
    """
    Step seconds of the best placement from scipy's quadratic assignment, and the seconds it takes.

    The best, by the true objective, of FAQ, 2-opt from there, and 2-opt from identity order; not a number where there
    are too many positions.
    """
    size = len(given.slots)
    if size > MOST_FAQ:
        return np.nan, np.nan
    started = time.perf_counter()
    assignment = placement_assignment(given)
    flow, distance = assignment.flow, assignment.distance
    found = [quadratic_assignment(flow, distance, method="faq").col_ind]
    if size <= MOST_TWO_OPT:
        for start in (found[0], _slots_of(given, identity(given))):
            guess = np.column_stack([np.arange(size), start])
            found.append(quadratic_assignment(flow, distance, "2opt", {"partial_guess": guess}).col_ind)
    seconds = time.perf_counter() - started
    return min(given.cost(given.slots[slots]) for slots in found), seconds


def _slots_of(given: PlacementProblem, positions: Ints) -> Ints:
    """Slot of every position; those of one node are alike and taken in order."""
    slots, taken = np.empty(len(positions), np.int64), np.argsort(positions[:, 0], kind="stable")
    slots[taken] = np.argsort(given.slots[:, 0], kind="stable")
    return slots
