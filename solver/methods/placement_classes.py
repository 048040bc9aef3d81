r"""
Classes of placement in the strategy program: which links the groups of a stage get.

Tensor, context and expert groups are consecutive ranks of a block: their degrees and the size of a node say which links
they get, and the program prices the best of these. The replicas of a stage and the hops of a pipeline compete for the
same nodes. Where rings are flat (AMP) a candidate has a variable for each of two classes:

- near: every stage touches the fewest nodes that hold it;
- far: some stage touches more nodes.

Sets: stages of dp blocks, nodes that hold c blocks at most, :math:`k_0 = \lceil dp / c \rceil`.
Data: seconds per byte :math:`\rho(k)` of a flat ring on k nodes, by its slowest link
(``taut.solver.bounds.least_rings`` (1)), and :math:`\rho_q(k)` if the stage's nodes are of the classes of device q.

(1) Near, if :math:`k_0 = 1`, a node holds :math:`\lfloor c / dp \rfloor` stages, so every pipeline stops at
    :math:`\lceil pp / \lfloor c / dp \rfloor \rceil` nodes and makes one hop less between nodes.
(2) Near, if :math:`k_0 c = dp`, every stage fills its nodes, so every pipeline makes pp - 1 hops between nodes.
(3) Near, a stage's ring takes :math:`\rho_q(k_0)`; on one node it is of one class of device.
(4) Far, the slowest ring takes :math:`\min_{k > k_0} \rho(k)` for as many bytes as the smallest stage may have, and any
    ring the least of :math:`\rho_q` over k.

In ``step`` and ``pipette`` the least over k is taken for every end of the first stage
(``taut.solver.bounds.communication`` (1)), and the cuts bound what the class of later stages adds.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.mechanisms.shards import holders
from taut.formulations.partition import slowest_type
from taut.formulations.problem import PlanningProblem
from taut.formulations.program.program import Option
from taut.formulations.rings import ring_factor
from taut.formulations.space import Candidate
from taut.solver.bounds.least_hops import least_edges
from taut.solver.bounds.least_rings import groups_of_node, spreads, telling
from taut.solver.bounds.link_bounds import BestLinks


def placement_classes(problem: PlanningProblem, best: BestLinks, option: Option) -> Iterator[Option]:
    """The option near and far; itself where no ring is flat, a block spans nodes, or types run unlike pipelines."""
    candidate, later, stages = option.candidate, option.later, option.partition
    is_flat = problem.latency.rings_are_flat and later is not None and later.optimizer > 0.0
    spans = candidate.width > int(problem.links.gpus_per_node.max())
    if not is_flat or later is None or spans or candidate.pipelines_by_type:
        yield option
        return
    near, far = _rings(problem, candidate, best, len(stages.budget))
    of_layers = np.broadcast_to(stages.gradients, stages.low.shape[:1] + stages.gradients.shape)
    possible = np.isfinite(near)
    low = np.where(possible[:, None, None, None], stages.low, np.inf)
    rates = np.where(possible, near, 0.0)[:, None, None] / later.optimizer
    yield option._replace(
        partition=replace(stages, low=low),
        tail=option.tail + _hops(problem, candidate, best),
        later=replace(later, parameters=rates * of_layers),
    )
    if np.isfinite(far).any():
        least = np.diagonal(stages.gradients, 1).min() * far.min()
        rates = np.where(np.isfinite(near) | np.isfinite(far), np.minimum(near, far), 0.0)[:, None, None]
        further = np.maximum(rates * of_layers - least, 0.0) / later.optimizer
        yield option._replace(tail=option.tail + least, later=replace(later, parameters=further))


def _hops(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Seconds of hops beyond those of any placement if all stages are near, (1) and (2)."""
    held, pp = groups_of_node(problem, candidate.width), candidate.pp
    hops = pp - 1 if candidate.dp % held == 0 else -(-pp // (held // candidate.dp)) - 1 if candidate.dp < held else 0
    weight, (_, between) = problem.transfer_weight(candidate), least_edges(problem, candidate, best)
    numbers = telling(problem, candidate, best)
    return weight * (min(between(k, hops) for k in numbers) - min(between(k) for k in numbers))


def _rings(problem: PlanningProblem, candidate: Candidate, best: BestLinks, patterns: int) -> tuple[Floats, Floats]:
    """Seconds per byte of rings near and far by pattern, (3) and (4), infinite for stages that no nodes hold."""
    fewest, factor = spreads(problem, holders(candidate), best.num_nodes).start, ring_factor(candidate.dp)
    own, across = [best], 0.0
    if patterns > 1:
        slow = problem.type_of_node == slowest_type(problem, candidate)
        across = best.least_across(problem.rings.inverse, slow)
        own = [best.of_nodes(~slow), best.of_nodes(slow)]

    def rates(k: int) -> Floats:
        """Of a ring on so many nodes, or more."""
        alone = [
            each.inside_inverse if k == 1 else each.core(k) if k <= min(each.num_nodes, candidate.dp) else np.inf
            for each in own
        ]
        mixed = np.inf if k == 1 or k > min(best.num_nodes, candidate.dp) else max(best.core(k), across)
        return factor * np.array(alone + (patterns - len(own)) * [mixed])

    return rates(fewest), rates(fewest + 1)
