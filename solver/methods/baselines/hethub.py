r"""
HETHUB's search: a tree of three levels, with stages on devices of one type and layers by their speed.

(1) The first level cuts the model into stages across the types of device, the second shares a stage's nodes between
    replicas, the third splits layers over tensor ranks inside a node. So each of pp stages takes dp tp devices of one
    type, and all types have whole stages.
(2) Load balance: a stage has layers in proportion to the speed of its devices on the whole model, rounded so that the
    slowest stage is as quick as may be.
(3) Stage order: the types stand along the pipeline in every order, and the quickest is taken.
(4) A depth-first walk prices every leaf, and the least predicted time wins.

The predictor is the evaluator. Where there is one type, it is an even pipeline with every degree tried.

References
----------
S. Xu et al., HETHUB: a distributed training system with heterogeneous cluster for large-scale models, arXiv 2405.16256,
section 3.3.
"""

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.methods.baselines.rules import plain_candidates, quickest, tried
from taut.solver.methods.named import Outcome
from taut.solver.result import Incumbent, Limits
from taut.solver.simple_plans import priced


def hethub(problem: PlanningProblem, limits: Limits, progress: Listener | None = None) -> Outcome:
    """Plan by (1) to (4)."""
    within = considered(problem)
    plans = (quickest(arranged(problem, each)) for each in within)
    return tried("hethub", plans, len(within), limits, progress)


def considered(problem: PlanningProblem) -> list[Candidate]:
    """Candidates of the tree, (1)."""
    return [each for each in plain_candidates(problem) if each.tp <= problem.links.gpus_per_node.min()]


def arranged(problem: PlanningProblem, candidate: Candidate, *, even: bool = False) -> Iterator[Incumbent | None]:
    """Plans by order of types and recompute, with ``even`` stages or balanced ones; None where one breaks a rule."""
    type_of = problem.type_of_node[problem.links.node_of]
    held = [np.flatnonzero(type_of == kind) for kind in range(len(problem.device_types))]
    share = candidate.dp * candidate.tp
    if any(len(devices) % share for devices in held):
        return
    for order in permutations(range(len(held))):
        devices = np.concatenate([held[kind] for kind in order]).reshape(candidate.pp, candidate.dp, candidate.tp)
        for name in problem.recompute_of(candidate):
            recompute = RECOMPUTE.index(name)
            whole = problem.tables(candidate).seconds[:, recompute, 0, -1]
            stages = whole[type_of[devices[:, 0, 0]]]
            ends = balanced(len(problem.model.blocks), np.ones_like(stages) if even else stages)
            if ends is not None:
                division = Division.of_ends(ends, np.full(candidate.pp, recompute))
                yield priced(problem, Strategy(candidate=candidate, division=division), devices)


def balanced(layers: int, whole: Floats) -> Ints | None:
    """Ends (pp,) of stages whose devices take ``whole`` seconds (pp,) for the model, (2); None for too few layers."""
    if len(whole) > layers:
        return None
    shares = layers / whole / np.sum(1.0 / whole)
    counts = np.maximum(np.floor(shares), 1.0)
    while counts.sum() > layers:
        counts[np.argmax(np.where(counts > 1, counts * whole, -np.inf))] -= 1
    while counts.sum() < layers:
        # One more layer where the stage is then least slow; inner stages first, as the ends have embedding and head.
        after = (counts + 1) * whole
        after[[0, -1]] *= 1 + 1e-9
        counts[np.argmin(after)] += 1
    return np.asarray(np.cumsum(counts), dtype=np.int64)
