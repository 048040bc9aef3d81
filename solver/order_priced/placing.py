r"""
Placement of a division that annealing prices by a guide: constructed starts, and a local search by the evaluator.

Objective: the evaluator's step time (``taut.formulations.latency``), in which a hop counts as often as the order's
longest path makes it, the hop from the last device back to the first one included, and rings of context and expert
ranks have their own members. The closed form that annealing uses as a guide (``taut.formulations.placement``) knows
none of these.

(1) Of the constructed placements (``taut.solver.placement.annealing.starts``) and others that are given, the best is
    taken.
(2) Neighbours exchange two positions on different nodes. ``BATCH`` random ones are priced together, since replicas of
    equal seconds are priced once; the best of them is taken if it improves.
(3) After ``MOST_IDLE`` batches without improvement neighbours exchange all positions of two stages, since what a stage
    shares with others on its nodes no exchange of two positions may keep. The search ends where none of these improves
    either, or after ``MOST_PASSES`` passes or the placements of ``MOST_DEVICES`` devices were priced.

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
"""Batches without improvement after which stages are exchanged: by then 190 neighbours were no better."""
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
    """A placement that is no worse than ``start``, which has the evaluator's seconds, by exchanges, (2) and (3)."""
    rng, best, idle = np.random.default_rng(seed), start, 0
    candidate = problem.candidate
    passes = len(candidate_order(candidate).passes) if candidate.is_order_priced else 1
    # An exchange touches two replicas, each priced with hops, without, and without all-reduces; one of stages all.
    left = min(MOST_PASSES // (6 * passes), MOST_DEVICES // problem.problem.cluster.num_devices) // BATCH
    while idle <= MOST_IDLE and left > 0:
        of_stages = idle == MOST_IDLE
        tried = [each for each in _exchanges(problem, best.positions, rng, of_stages) if not problem.violations(each)]
        found = best_of(problem, tried) if tried else best
        idle = 0 if found.seconds < best.seconds else idle + 1
        left -= -(-candidate.pipelines // 2) if of_stages else 1
        best = min(best, found, key=lambda one: one.seconds)
    return best


def _exchanges(problem: PlacementProblem, positions: Ints, rng: np.random.Generator, of_stages: bool) -> list[Ints]:
    """Random exchanges of two positions, or of all positions of two stages, on different nodes."""
    nodes, found = problem.links.node_of_site[positions[:, 0]], []
    moved = np.arange(len(positions)).reshape(-1, problem.candidate.pp if of_stages else len(positions)).T
    if of_stages:
        pairs = rng.permutation(np.stack(np.triu_indices(len(moved), 1), axis=1))[:BATCH]
    else:
        pairs = rng.integers(len(moved), size=(BATCH, 2))
    for one, other in moved[pairs]:
        if (nodes[one] != nodes[other]).any():
            changed = positions.copy()
            changed[one], changed[other] = positions[other], positions[one]
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
