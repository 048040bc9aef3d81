"""The global lower bound if no memory margin had to be kept: what the margin costs at most."""

from collections.abc import Callable

import numpy as np

from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.candidate_bounds import chunked, communication, partition_bound, relaxation_bound
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_partition import least_excess
from taut.solver.order_priced.bound import order_bound
from taut.solver.placement.exact.enumerate import ListCache, has_every, solve_every
from taut.solver.placement.exact.joint import SubsetCache, has_joint, solve_joint


def bound_without_margin(problem: PlanningProblem, stop: Callable[[], bool] = lambda: False) -> float:
    """
    Global lower bound if no memory margin had to be kept, in seconds.

    The least bound over all candidates, each by the strongest method that applies; those whose weaker bound is no
    better than the least so far are not refined. Those that are priced by their order come last, as in the search.
    Minus infinity if it was asked to stop, which it asks between candidates.
    """
    best, subsets, lists = BestLinks(problem.links), SubsetCache(), ListCache()
    relaxed = []
    for candidate in problem.candidates:
        if stop():
            return -np.inf
        comm = communication(problem, candidate, best)
        relaxed.append((relaxation_bound(problem, candidate, comm), candidate, comm))
    least = np.inf
    for value, candidate, comm in sorted(relaxed, key=lambda entry: (entry[1].is_order_priced, entry[0])):
        if value >= least:
            continue
        if stop():
            return -np.inf
        if candidate.is_order_priced:
            fits = least_excess(partition_problem(problem, candidate, margin=False))[0] == 0
            given = chunked(problem, candidate, best, margin=False)
            bound = order_bound(given, least).seconds if fits else np.inf
        else:
            bound = partition_bound(problem, candidate, comm, margin=False)[0]
        if bound < least and has_every(problem, candidate):
            bound = max(bound, solve_every(problem, candidate, best, lists, margin=False).lower_bound)
        elif bound < least and has_joint(problem, candidate, subsets):
            bound = max(bound, solve_joint(problem, candidate, best, subsets, margin=False).lower_bound)
        least = min(least, max(bound, value))
    return float(least)
