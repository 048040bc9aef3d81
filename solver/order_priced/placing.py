r"""
Placement of an order-priced division: constructed starts, and a local search that prices what the order prices.

Objective: the evaluator's step time (``taut.formulations.latency``), in which a hop counts as often as the order's
longest path makes it, the hop from the last device back to the first one included. The closed form that annealing uses
as a guide (``taut.formulations.placement``) knows neither.

(1) Of the constructed placements (``taut.solver.placement.annealing.starts``) and others that are given, the best is
    taken.
(2) Neighbours exchange two positions on different nodes. ``BATCH`` random ones are priced together, since replicas of
    equal seconds are priced once; the best of them is taken if it improves. The search ends after ``MOST_IDLE`` batches
    without improvement, or after ``MOST_PASSES`` passes or the placements of ``MOST_DEVICES`` devices were priced.

Nothing is claimed of how good the placement is.
"""

from collections.abc import Iterable

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.latency import step_time
from taut.formulations.order_division import candidate_order
from taut.formulations.placement import FoundPlacement, PlacementProblem
from taut.solver.placement.annealing.starts import starts

BATCH = 32
"""Neighbours that are priced at once."""
MOST_IDLE = 6
"""Batches without improvement after which the search ends: by then 190 neighbours were no better."""
MOST_PASSES = 100_000_000
"""Passes of pipelines that are priced at most: about a second."""
MOST_DEVICES = 2_000_000
"""Devices that are placed at most, over all neighbours: some seconds on thousands of devices, fewer on few."""
AT_ONCE = 200_000
"""Devices whose placements are priced at once, so that what they ask for fits a small part of memory."""


def constructed(problem: PlacementProblem, patterns: tuple[int, ...]) -> FoundPlacement:
    """The best constructed placement by the evaluator, (1)."""
    return best_of(problem, starts(problem, patterns))


def best_of(problem: PlacementProblem, placed: Iterable[Ints]) -> FoundPlacement:
    """The best of some placements by the evaluator."""
    every = list(placed)
    seconds = _prices(problem, every)
    best = int(seconds.argmin())
    return FoundPlacement(seconds=float(seconds[best]), positions=every[best])


def improved(problem: PlacementProblem, start: FoundPlacement, *, seed: int) -> FoundPlacement:
    """A placement that is no worse than ``start``, which has the evaluator's seconds, by exchanges, (2)."""
    rng, best, idle = np.random.default_rng(seed), start, 0
    passes = len(candidate_order(problem.candidate).passes)
    # An exchange touches two replicas, each priced with hops, without, and without all-reduces.
    left = min(MOST_PASSES // (6 * passes), MOST_DEVICES // problem.problem.cluster.num_devices) // BATCH
    while idle < MOST_IDLE and left > 0:
        tried = [each for each in _exchanges(problem, best.positions, rng) if not problem.violations(each)]
        if not tried:
            break
        found = best_of(problem, tried)
        idle, left = (0 if found.seconds < best.seconds else idle + 1), left - 1
        best = min(best, found, key=lambda one: one.seconds)
    return best


def _exchanges(problem: PlacementProblem, positions: Ints, rng: np.random.Generator) -> list[Ints]:
    """Random exchanges of two positions on different nodes."""
    nodes, found = problem.links.node_of_site[positions[:, 0]], []
    for one, other in rng.integers(len(positions), size=(BATCH, 2)).tolist():
        if nodes[one] != nodes[other]:
            changed = positions.copy()
            changed[[one, other]] = positions[[other, one]]
            found.append(changed)
    return found


def _prices(problem: PlacementProblem, every: list[Ints]) -> Floats:
    """Step times of some placements, infinite where a stage does not fit its device, (n,)."""
    size = max(AT_ONCE // problem.problem.cluster.num_devices, 1)
    return np.concatenate([_together(problem, every[k : k + size]) for k in range(0, len(every), size)])


def _together(problem: PlacementProblem, every: list[Ints]) -> Floats:
    """The step times of as many as are priced at once, (n,)."""
    devices = np.stack([problem.devices(positions) for positions in every])
    seconds = np.asarray(step_time(problem.problem, problem.strategy, devices).total)
    types = problem.problem.type_of_node[problem.links.node_of[devices]]
    stage = np.arange(problem.candidate.pp)[:, None, None]
    fits = np.isfinite(problem.stage_seconds[stage, types]).all(axis=(1, 2, 3))
    return np.where(fits, seconds, np.inf)
