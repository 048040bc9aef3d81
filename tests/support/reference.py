"""The reference evaluator beside the fast one: the same problem, strategy and placement for both."""

from itertools import pairwise

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.formulations import gradient_reductions
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.certificate.reference import gradients
from taut.solver.certificate.reference.space import Case, Choice


def small_buckets(patch: pytest.MonkeyPatch, parameters: int = 10_000, a_replica: int = 0) -> None:
    """Buckets of so many parameters in both evaluators: random models are smaller than real buckets."""
    patch.setattr(gradients, "LEAST_BUCKET", parameters)
    patch.setattr(gradients, "BUCKET_A_REPLICA", a_replica)
    patch.setattr(gradient_reductions, "LEAST_BUCKET", parameters)
    patch.setattr(gradient_reductions, "BUCKET_PER_REPLICA", a_replica)


def case_of(problem: PlanningProblem) -> Case:
    """The problem as the reference evaluator takes it."""
    return Case(
        model=problem.model,
        cluster=problem.cluster,
        costs=problem.costs,
        memory=problem.memory,
        space=problem.space.model_dump(mode="json"),
        latency_model=problem.latency_model,
        calibration=problem.calibration,
        overlap_grad_reduce=problem.overlap_grad_reduce,
    )


def choice_of(candidate: Candidate) -> Choice:
    """A candidate as the reference evaluator takes it."""
    values = candidate.as_dict()
    return Choice(**{**values, "order": tuple(values.get("order", ()))})


def random_strategy(problem: PlanningProblem, candidate: Candidate, rng: np.random.Generator) -> Strategy:
    """Random stages and recompute of a candidate."""
    chunks = candidate.pp * candidate.vpp
    cuts = sorted(rng.choice(np.arange(1, problem.num_layers(candidate)), chunks - 1, replace=False).tolist())
    ends = [*cuts, problem.num_layers(candidate)]
    recompute = rng.choice(problem.recompute_of(candidate), chunks).tolist()
    stages = tuple(zip([0, *cuts], ends, strict=True))
    return Strategy(candidate=candidate, division=Division(stages, tuple(map(str, recompute))))


def random_placement(problem: PlanningProblem, candidate: Candidate, rng: np.random.Generator) -> Ints:
    """Random devices of every worker, (pp, pipelines, width), with whole blocks and groups."""
    block, nodes = candidate.block, problem.cluster.node_list
    size = max(node.gpus_per_node for node in nodes)
    first = np.concatenate([[0], np.cumsum([node.gpus_per_node for node in nodes])])
    own = [rng.permutation(np.arange(start, end)) for start, end in pairwise(first)]
    if block.width <= size:
        groups = rng.permutation(np.concatenate(own).reshape(-1, block.width))
    else:
        whole = np.concatenate([own[n] for n in rng.permutation(len(nodes))])
        inner = max(count for count in block.groups if count <= size or count == block.tp)
        blocks = whole.reshape(-1, block.width // inner, inner)
        groups = rng.permuted(blocks, axis=1) if block.tp <= size else rng.permuted(blocks, axis=2)
    return groups.reshape(candidate.pp, candidate.pipelines, block.width)
