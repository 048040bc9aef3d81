r"""
Cases of the first stage: least rings with several copies of sharded weights, or with a tied embedding under ZeRO-2, 3.

Sets: C copies of s replicas. The replicas at place :math:`p = 0, \dots, s - 1` of every copy are one ring between
copies. The stage has :math:`c_n` tensor groups on node n of N nodes; a single stage has all groups.

(1) Case: every copy lies in one node. Node n then has :math:`c_n / s` copies, so every ring between copies has as many
    members there. In a single stage the ring touches all nodes: ``taut.solver.bounds.least_rings`` (3). In one of
    several stages it touches at least :math:`\lceil C / \lfloor c / s \rfloor \rceil` nodes, c the most groups that a
    node holds.
(2) Other cases: some copy touches :math:`k \ge 2` nodes, and no copy more. Its gathers take at least
    ``taut.solver.bounds.least_rings`` (2) on k nodes.
(3) In case k, let j be the most nodes that a ring between copies touches. Then
    :math:`j k \ge (\sum_n \sqrt{c_n})^2 / \sum_n c_n`, which is N if nodes are equal. Proof: let :math:`a_n` rings and
    :math:`b_n` copies be on node n. A ring and a copy share one replica, so :math:`c_n \le a_n b_n`. There are s rings
    and C copies, so :math:`\sum_n a_n \le s j` and :math:`\sum_n b_n \le C k`. By Cauchy's inequality
    :math:`(\sum_n \sqrt{c_n})^2 \le \sum_n a_n \sum_n b_n \le j k s C = j k \sum_n c_n`. Some ring therefore touches at
    least the least such j. One of several stages has s C groups on nodes that are not known. The square root is
    concave, so the left side is least if the groups fill the largest nodes.

(4) Consider a single stage whose tensor groups lie in nodes. Any two nodes n and m hold a replica each: of copy A at
    place p, and of copy B at place q. The replica of copy A at place q, on a node w, shares its copy with the first
    replica and its ring with the second. Let :math:`\gamma` be the slowest link inside copies, and :math:`\rho` the
    slowest link of rings between copies, both 0 inside a node. With the links' matrices :math:`\gamma_{nw}` and
    :math:`\rho_{wm}`,

    .. math:: \rho \ge \max_{n, m} \min_{w : \gamma_{nw} \le \gamma} \rho_{wm} .

    The right side rises as :math:`\gamma` falls. A case is a level of :math:`\gamma`: gathers take the lowest link of
    the level, and rings the right side at its highest link.

(5) Expert gradients are reduced over ``edp`` ranks. The bound assumes the best placement of these ranks, and adds this
    ring to every case (``taut.solver.bounds.least_rings`` (7)). If a single stage has each copy in one node, (1) holds
    for expert ranks too. Expert ranks restrict the placement of blocks further, so all other cases stay valid.
(6) A tied embedding makes two cases of each case, also with one copy: its exchange runs between nodes, or inside nodes
    with few groups of the stage on each node (``taut.solver.bounds.least_rings`` (8)). The second case has longer
    rings.

If devices or tensor groups differ, the slowest replica may lie in another copy than the copy of (2), so (2) says
nothing about its gathers and is left out. With expert ranks every block has the price of the best block, so (2) holds
if all devices are equal. Later stages, and the devices of an order-priced schedule, take the least of all cases.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.gradient_reductions import least_bytes, tied_bytes
from taut.formulations.mechanisms.shards import (
    between_copies,
    copy_of,
    expert_holders,
    has_expert_rings,
    holders,
    weight_share,
)
from taut.formulations.partition import PartitionProblem, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_factor
from taut.formulations.sharding import gather_rates
from taut.formulations.space import Candidate
from taut.formulations.terms import Group, gathers_of, in_one_ring
from taut.solver.bounds.communication import fixed_seconds, tail_of_first
from taut.solver.bounds.least_rings import (
    Spread,
    every_device,
    least_expert_ring,
    least_gather,
    least_ring,
    ring_per_byte,
    spreads,
    tied_exchange,
)
from taut.solver.bounds.link_bounds import BestLinks

LEVELS = 33
"""Levels of (4): on 16 and 32 nodes, with lognormal links and on a fat tree, four times as many raise the bound by less
than 0.001 %."""
MOST_NODES = 512
"""Nodes up to which (4) is computed: its work grows with the cube of them."""


class Case(NamedTuple):
    """
    A case: the least that the rings of the first stage take.

    ``gather``: seconds per byte of an all-reduce inside a copy. ``reduction``, ``experts``: seconds per gradient byte
    after the passes, of common parameters and of experts. ``tied``: seconds of a tied embedding's exchange. In this
    case a pipeline makes at least ``hops`` hops between nodes, and the stage has at most ``most`` groups on a node.
    """

    gather: float
    reduction: float
    experts: float
    tied: float = 0.0
    hops: int = 0
    most: int = 0


class Level(NamedTuple):
    """A level of (4): the slowest link inside copies, and a bound on the slowest link of rings between copies."""

    gather: float
    between: float


class Divided(NamedTuple):
    """A case: its partition problem, and its seconds after the passes by the end of stage 0, (L+1,)."""

    stages: PartitionProblem
    tail: Floats


def has_cases(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether a closed form has cases: several copies, or a tied embedding with gathers in the passes."""
    terms = problem.terms(candidate)
    shared = bool(gathers_of(terms)) and tied_bytes(problem, candidate) > 0.0
    return shared or not in_one_ring(terms)


def divided(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, margin: bool = True
) -> Iterator[Divided]:
    """Yield the partition problems of a candidate by cases, one of which holds where ``has_cases`` does."""
    least, alone = least_gather(problem, candidate, best), candidate.pp == 1
    every = None if alone else partition_problem(problem, candidate, margin=margin, gather=least)
    for case in cases(problem, candidate, best):
        gather = least
        if gathers_of(problem.terms(candidate)):
            gather = least._replace(common=_of_common(problem, candidate, case.gather))
        tail = _tail(problem, candidate, best, case)
        if every is not None and gather == least:
            yield Divided(every, tail)
            continue
        own = partition_problem(problem, candidate, margin=margin, gather=gather)
        yield Divided(own if every is None else _of_first_stage(own, every), tail)


def _of_common(problem: PlanningProblem, candidate: Candidate, ring: float) -> float:
    """Seconds per byte of gathers of common parameters, from the seconds per byte of an all-reduce inside a copy."""
    return float(gather_rates(problem.terms(candidate), lambda _: ring).common)


def _tail(problem: PlanningProblem, candidate: Candidate, best: BestLinks, case: Case) -> Floats:
    """Seconds beyond the passes for a stage 0 that ends at layer j, (L+1,)."""
    if candidate.pp == 1:
        common = least_bytes(problem, candidate)[0]
        of_experts = least_bytes(problem, candidate, problem.gradient_bytes(candidate, "experts"))[0]
        reduced = common * case.reduction + of_experts * case.experts
        return np.asarray(reduced + fixed_seconds(problem, candidate))
    touched = best.telling(candidate.dp_cp, _touched(problem, candidate, case.most))
    choices = [(Spread(k, case.hops, case.tied), case.reduction) for k in touched]
    return tail_of_first(problem, candidate, best, choices, case.experts)


def _touched(problem: PlanningProblem, candidate: Candidate, most: int) -> range:
    """Every number of nodes that stage 0 may touch with at most ``most`` tensor groups on a node."""
    spread = spreads(problem, holders(candidate))
    return range(max(spread.start, -(-candidate.dp_cp // most)), spread.stop)


def _of_first_stage(own: PartitionProblem, every: PartitionProblem) -> PartitionProblem:
    """The problem ``every`` with the seconds of ``own`` for ranges from layer 0, which only stage 0 has."""

    def begun(first: Floats, others: Floats) -> Floats:
        found = others.copy()
        found[..., 0, :] = first[..., 0, :]
        return found

    forward = None
    if own.forward is not None and every.forward is not None:
        forward = begun(own.forward, every.forward)
    return replace(every, low=begun(own.low, every.low), high=begun(own.high, every.high), forward=forward)


def cases(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> list[Case]:
    """List the cases of the first stage, one of which holds where ``has_cases`` does."""
    tied, room = tied_exchange(problem, candidate, best), int(problem.links.gpus_per_node.max())
    ends = [(tied.apart, 0, room)] + [(tied.inside, tied.hops, tied.most)] * (tied.inside < tied.apart)
    find = _of_one_copy if in_one_ring(problem.terms(candidate)) else _of_copies
    found = [
        case._replace(tied=seconds, hops=hops, most=most)
        for seconds, hops, most in ends
        if _touched(problem, candidate, most)
        for case in find(problem, candidate, best, most)
    ]
    return [one for one in found if not any(_dominates(other, one) for other in found)]


def least_reduction_of_copies(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Least seconds per gradient byte of any stage's rings over all cases; 0 if all replicas share one copy."""
    found = [] if in_one_ring(problem.terms(candidate)) else cases(problem, candidate, best)
    return min((case.reduction for case in found if np.isfinite(case.reduction)), default=0.0)


def _of_one_copy(problem: PlanningProblem, candidate: Candidate, best: BestLinks, most: int) -> list[Case]:
    """The case of one copy with at most ``most`` tensor groups of the stage on a node, (6)."""
    touched = best.telling(candidate.dp_cp, _touched(problem, candidate, most))
    ring = min(ring_per_byte(candidate.dp_cp, k, best) for k in touched)
    return [Case(ring, ring, least_expert_ring(problem, candidate, best))]


def _of_copies(problem: PlanningProblem, candidate: Candidate, best: BestLinks, most: int) -> list[Case]:
    """The cases of several copies with at most ``most`` tensor groups of the stage on a node, (1) to (4)."""
    links, share, copy = problem.links, weight_share(problem.memory.parameter_bytes, candidate), _copy(candidate)
    others, size = between_copies(candidate), copy.members
    found, least, of_experts = [], least_ring(problem, copy, best), least_expert_ring(problem, candidate, best)
    if (ring := _ring_of_whole_copies(problem, candidate, best, most)) is not None:
        within = of_experts if candidate.pp > 1 else _experts_in_nodes(problem, candidate, best)
        found.append(Case(least, share * least + ring, within))
    several, alike = spreads(problem, copy), _alike(problem, candidate)
    inside = links.by_node and candidate.tp <= links.gpus_per_node.min()
    levels = _levels(best) if alike and inside and candidate.pp == 1 else [Level(0.0, 0.0)]
    for k in range(max(several.start, 2), several.stop):
        widest = ring_per_byte(size, k, best) if alike else least
        numbers = spreads(problem, others)
        touched = range(max(numbers.start, _fewest_nodes(problem, candidate, k, most)), numbers.stop)
        rings = (ring_per_byte(others.members, j, best) for j in best.telling(others.members, touched))
        fewest = min(rings, default=np.inf)
        for level in levels:
            gather = max(widest, ring_factor(2) * level.gather)
            summed = max(fewest, ring_factor(2) * level.between)
            found.append(Case(gather, share * gather + summed, of_experts))
    return found


def _ring_of_whole_copies(problem: PlanningProblem, candidate: Candidate, best: BestLinks, most: int) -> float | None:
    """Least seconds per byte of rings between copies if every copy lies in one node, (1); None if it cannot."""
    room, copies, size = problem.links.gpus_per_node, between_copies(candidate).members, _copy(candidate).members
    if candidate.pp == 1:
        whole = (room % (candidate.tp * size) == 0).all()
        return every_device(problem.links, holders(candidate), best, size) if whole else None
    held = np.minimum(room // candidate.tp, most) // size
    if held.sum() < copies:
        return None
    touched = range(-(-copies // int(held.max())), min(copies, problem.links.num_nodes) + 1)
    return min(ring_per_byte(copies, k, best) for k in best.telling(copies, touched))


def _dominates(one: Case, other: Case) -> bool:
    """Whether a case is no dearer in any figure, and cheaper in one."""
    figures = zip((*one[:-1], -one.most), (*other[:-1], -other.most), strict=True)
    return one != other and all(mine <= its for mine, its in figures)


def _experts_in_nodes(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Least seconds per gradient byte of experts if every copy lies in one node, (5)."""
    if not has_expert_rings(candidate):
        return 0.0
    held = expert_holders(candidate)
    copy = copy_of(candidate, held)
    inside = weight_share(problem.memory.parameter_bytes, candidate) * least_ring(problem, copy, best)
    fewer = _copy(candidate).members / copy.members
    return inside + fewer * every_device(problem.links, held, best, copy.members)


def _copy(candidate: Candidate) -> Group:
    """The holders of the same common parameters in one copy."""
    return copy_of(candidate, holders(candidate))


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


def _fewest_nodes(problem: PlanningProblem, candidate: Candidate, k: int, most: int) -> int:
    """Least nodes that some ring between copies touches if no copy touches more than k nodes, (3)."""
    held = np.sort(np.minimum(problem.links.gpus_per_node // candidate.tp, most))[::-1]
    taken = np.diff(np.minimum(held.cumsum(), candidate.dp), prepend=0)
    if not taken.any():
        return 1
    return math.ceil(float(np.sqrt(taken).sum() ** 2 / taken.sum()) / k * (1 - 1e-12))


def _alike(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether all tensor groups have the same seconds at best."""
    if len(problem.device_types) > 1:
        return False
    if candidate.ep > 1 or candidate.tp == 1 or candidate.tp > problem.links.gpus_per_node.max():
        return True
    return all(np.ptp(figures) == 0 for figures in problem.links.best_groups(candidate.tp))
