r"""
Least rings of a single stage whose replicas have several copies of weights and gradients, by cases.

Sets: C copies of s replicas; places :math:`p = 0, \dots, s - 1` in a copy, whose replicas are one ring between copies;
N nodes n with :math:`c_n` tensor groups, all of which the stage takes.

(1) If every copy lies in one node, node n has :math:`c_n / s` copies, so every ring between copies has so many members
    there and touches all nodes: ``taut.solver.bounds.least_rings`` (3) with them.
(2) Otherwise some copy touches :math:`k \ge 2` nodes, and none more. Gathers of its replicas take at least those of so
    many nodes (``taut.solver.bounds.least_rings`` (2)).
(3) If no ring between copies touches more than j nodes, then :math:`j k \ge (\sum_n \sqrt{c_n})^2 / \sum_n c_n`,
    which is N where nodes are alike: with :math:`a_n` rings and :math:`b_n` copies on node n, :math:`c_n \le a_n b_n`,
    :math:`\sum_n a_n \le s j` and :math:`\sum_n b_n \le C k`, so that by Cauchy's inequality
    :math:`(\sum_n \sqrt{c_n})^2 \le \sum_n a_n \sum_n b_n \le j k s C = j k \sum_n c_n`. Some ring is no faster than
    those of so many nodes.

(4) Any two nodes n and m hold a replica each, of copy A and place p, and of copy B and place q. The replica of copy A
    and place q, on node w, is in one copy with the first and in one ring with the second. With :math:`\gamma` the
    slowest link inside copies and :math:`\rho` that of rings between them, both 0 inside a node,

    .. math:: \rho \ge \max_{n, m} \min_{w : \gamma_{nw} \le \gamma} \rho_{wm},

    where both matrices are those of the links. It rises as :math:`\gamma` falls, so cases are levels of
    :math:`\gamma`: gathers at the lowest link of a level, rings after its highest.

(5) Experts on ranks of their own have rings as tensor groups of an expert group's devices would have, each case at
    least the least of any (``taut.solver.bounds.least_rings`` (7)); where every copy lies in one node, (1) holds for
    them as well. Their blocks lie on nodes in fewer ways, so that all else stands.

Where devices or tensor groups differ, the slowest replica may be one of another copy than (2)'s, which then says
nothing of its gathers. Beside expert ranks every block is priced as the best one, so that of devices alike any may be.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.gradient_reductions import has_expert_rings, weight_share
from taut.formulations.partition import PartitionProblem, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_factor
from taut.formulations.sharding import half_ring
from taut.formulations.space import Candidate
from taut.solver.bounds.communication import fixed_seconds
from taut.solver.bounds.least_rings import (
    every_device,
    expert_groups,
    least_expert_ring,
    least_gather,
    least_ring,
    one_of_each_copy,
    replicas_of,
    ring_per_byte,
    spreads,
)
from taut.solver.bounds.link_bounds import BestLinks

LEVELS = 33
"""Levels of (4): on 16 and 32 nodes, with lognormal links and on a fat tree, four times as many raise the bound by less
than 0.001 %."""
MOST_NODES = 512
"""Nodes up to which (4) is computed: its work grows with the cube of them."""


class Case(NamedTuple):
    """Seconds per byte of an all-reduce inside a copy, and for each gradient byte after the passes, or an expert's."""

    gather: float
    reduction: float
    experts: float


class Level(NamedTuple):
    """Slowest link inside copies, and least slowest one of rings between them, (4)."""

    gather: float
    between: float


def cases(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> list[Case]:
    """
    List the cases of a single stage, one of which holds.

    Parameters
    ----------
    problem, candidate
        What is bounded, with ``dp_shard`` replicas to a copy.
    best
        The best links.
    """
    links, size, share = problem.links, candidate.dp_shard, weight_share(problem, candidate)
    copy, others = replicas_of(candidate, size), one_of_each_copy(candidate, candidate.width)
    found, least, of_experts = [], least_ring(problem, copy, best), least_expert_ring(problem, candidate, best)
    if (links.gpus_per_node % (candidate.tp * size) == 0).all():
        within = share * least + every_device(links, candidate, best, size)
        found.append(Case(least, within, _experts_in_nodes(problem, candidate, best)))
    several, alike = spreads(problem, copy), _alike(problem, candidate)
    levels = _levels(best) if alike and links.by_node else [Level(0.0, 0.0)]
    for k in range(max(several.start, 2), several.stop):
        widest = ring_per_byte(size, k, best) if alike else least
        between = spreads(problem, others)
        touched = range(max(between.start, _fewest_nodes(problem, candidate, k)), between.stop)
        fewest = min((ring_per_byte(others.dp, j, best) for j in best.telling(others.dp, touched)), default=np.inf)
        for level in levels:
            gather = max(widest, ring_factor(2) * level.gather)
            between_copies = max(fewest, ring_factor(2) * level.between)
            found.append(Case(gather, share * gather + between_copies, of_experts))
    return [one for one in found if not any(_dominates(other, one) for other in found)]


def _dominates(one: Case, other: Case) -> bool:
    """Whether a case is no dearer in any figure, and cheaper in one."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _experts_in_nodes(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Seconds for each gradient byte of experts where every copy lies in one node, (5)."""
    if not has_expert_rings(candidate):
        return 0.0
    groups, shards = expert_groups(candidate), candidate.expert_shards
    inside = weight_share(problem, candidate) * least_ring(problem, replicas_of(groups, shards), best)
    return inside + candidate.shards / shards * every_device(problem.links, groups, best, shards)


def stages_of_cases(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool = True
) -> Iterator[tuple[PartitionProblem, Floats]]:
    """
    The partition problem of every case, and what comes after the passes of layers up to j, (L+1,).

    Parameters
    ----------
    problem, candidate, best
        As of ``cases``.
    margin
        Whether the memory margin is kept free.
    """
    fixed, gathers = fixed_seconds(problem, candidate), least_gather(problem, candidate, best)
    common, of_experts = problem.gradient_bytes(candidate)[0], problem.expert_gradient_bytes(candidate)[0]
    for case in cases(problem, candidate, best):
        gather = gathers._replace(common=float(half_ring(problem, case.gather)))
        stages = partition_problem(problem, candidate, margin=margin, gather=gather)
        yield stages, common * case.reduction + of_experts * case.experts + fixed


def _levels(best: BestLinks) -> list[Level]:
    """Slowest link inside copies and least slowest link of rings between them, by levels of the former, (4)."""
    apart = best.between_nodes.copy()
    if len(apart) > MOST_NODES:
        return [Level(0.0, 0.0)]
    np.fill_diagonal(apart, 0.0)
    every = np.unique(apart)
    highest = every[np.unique(np.linspace(0, len(every) - 1, LEVELS).astype(np.int64))]
    found, low = [], 0.0
    for high in highest.tolist():
        reached = np.stack([apart[near].min(axis=0) for near in apart <= high])
        found.append(Level(low, float(reached.max())))
        low = float(every[np.searchsorted(every, high, side="right") :].min(initial=np.inf))
    return found


def _fewest_nodes(problem: PlanningProblem, candidate: Candidate, k: int) -> int:
    """Nodes that the widest ring between copies touches at least, where no copy touches more than k, (3)."""
    groups = problem.links.gpus_per_node // candidate.tp
    if not groups.all():
        return 1
    return math.ceil(float(np.sqrt(groups).sum() ** 2 / groups.sum()) / k * (1 - 1e-12))


def _alike(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether all tensor groups have the same seconds at best."""
    if len(problem.device_types) > 1:
        return False
    if candidate.ep > 1 or candidate.tp == 1 or candidate.tp > problem.links.gpus_per_node.max():
        return True
    return all(np.ptp(figures) == 0 for figures in problem.links.best_groups(candidate.tp))
