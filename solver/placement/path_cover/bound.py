r"""
Bound ``cover`` of a candidate, from the case distinction that is its witness.

With V(g) the least communication for gradients of g bytes by ``taut.solver.placement.path_cover.cases`` (3),

(1) LB = min over the layers j that stage 0 takes of [partition with stage 0 ending at j] + V(gradients of j);
(2) hops are priced at the smallest message; a cut adds its further bytes at the fastest link.
(3) In ``step`` stage x waits for
    :math:`U_x \ge \sum_{y<x} forward(y) + \sum_{y \ge x} low(y) + h T - b_x + \rho_x M_x`, with T
    the least longest path of all cases, :math:`\rho_x` the least ring of any stage, M_x bytes of the stage, and
    :math:`b_x` at least the ways back of the longest path's first x hops: x times the slowest of any hop, or (4). A
    case is empty where no such links lie between any nodes, so a ring of any stage is in one of the others, too.
    Where racks are told apart (``taut.solver.placement.path_cover.racks``), each of their cases has V and T of
    its own, and in that where stage p spans racks :math:`\rho_p` is the least ring of such a stage. LB is the least
    over the cases, or (1) with V and T over all of them if that is more.
(4) Let a way back take at most a share :math:`\kappa` of its hop, and all hops of a path but the first x at least S. If
    those x take H, the path less their ways back takes at least
    :math:`\max(h T, H + S) - \kappa H \ge h T - \kappa (h T - S)`. Of several tensor ranks each hop may have another
    one that is the slowest on its way back, while T is the sum of one of them. Then the ways back of two hops may take
    more than the path, and (4) with :math:`\kappa = 1` holds for p = 1 alone.

The witness is the case distinction as ``taut.solver.placement.path_cover.cases.CaseCertificate`` holds it, with
``sha256``, a digest of all else. Where racks are told apart it is the ``racks`` of all nodes, and in ``stages`` a case
distinction for each ``RackCase``, with ``confined`` and ``spanning``. Everything else follows from the problem, so this
module is all that a check needs; ``taut.solver.placement.path_cover.proving`` searches for witnesses.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from taut.data.arrays import Floats
from taut.data.spec import digest
from taut.formulations.gradient_reductions import least_bytes
from taut.formulations.links import PairTable
from taut.formulations.partition import LaterStages, PartitionProblem, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.communication import fixed_seconds
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.divide import Partition, solve_partition
from taut.solver.placement.exact.joint import linked
from taut.solver.placement.path_cover.cases import CaseCertificate, CommunicationBound, Section, certified_bound
from taut.solver.placement.path_cover.racks import WHOLE, RackCase, has_racks, is_whole, known_racks
from taut.solver.placement.slots import SlotGraph, slot_graph

MAX_NODES = 2048
"""Nodes up to which the bound is tried: one pass of the pricing problem takes minutes beyond."""


def has_cover(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether the bound applies: equal devices, different links, and trips that are priced apart from stages."""
    links = problem.links
    return (
        candidate.pp > 1
        and candidate.is_plain
        and len(problem.device_types) == 1
        and 1 < links.num_nodes <= MAX_NODES
        and bool((links.gpus_per_node == links.gpus_per_node[0]).all() or candidate.tp <= links.gpus_per_node.min())
        and not problem.latency.rings_are_flat
        and problem.transfer_weight(candidate) > 0.0
        and not (_equal(links.latency) and _equal(problem.rings.inverse) and _equal(links.pipeline_rate(candidate.tp)))
    )


def _equal(figures: PairTable) -> bool:
    """Whether all pairs of two different sites have the same figure."""
    apart = figures.present()
    return bool((apart == apart[0]).all())


@dataclass(frozen=True, kw_only=True)
class Covered:
    """What is proven in one of the cases of (3): ``ring`` of a stage that spans racks, ``any_ring`` of any stage."""

    bound: CommunicationBound
    case: RackCase = WHOLE
    ring: float = 0.0
    any_ring: float = 0.0


def cover_bound(
    problem: PlanningProblem,
    candidate: Candidate,
    best: BestLinks,
    covered: tuple[Covered, ...],
    *,
    margin: bool = True,
) -> tuple[float, Partition]:
    """Seconds by (1), or (3), infinite if no division fits; and the partition that attains them."""
    gather = least_gather(problem, candidate, best)
    stages = partition_problem(problem, candidate, margin=margin, gather=gather)
    found, _ = CoveredSeconds(problem, candidate, best).least(stages, covered)
    return found.seconds * (1 - ROUNDING), found


class CoveredSeconds:
    """Cuts and all else of one candidate, priced by what is proven of its pipelines and the ring of stage 0."""

    def __init__(self, problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> None:
        message = float(problem.tables(candidate).message[1:-1].min())
        self._weight, self.gradients = problem.transfer_weight(candidate), least_bytes(problem, candidate)[0]
        self.edge, self._tail, self.later = linked(problem, candidate, best, message)
        self.fixed = fixed_seconds(problem, candidate)
        in_one_node = candidate.width <= problem.links.gpus_per_node.min()
        self._single = candidate.tp == 1 or (problem.links.by_node and in_one_node)
        self.slowest_back, self._share, self._shortest = _ways_back(problem, candidate, best, single=self._single)
        self._hops = candidate.pp - 1
        self._known: dict[bytes, Partition] = {}

    def tail(self, bound: CommunicationBound) -> Floats:
        """Seconds of a stage 0 that ends at layer j, with the communication that is proven, (L+1,)."""
        return np.maximum(self._tail, bound.seconds(self._weight, self.gradients) + self.fixed)

    def least(self, stages: PartitionProblem, covered: tuple[Covered, ...]) -> tuple[Partition, int]:
        """The least partition of any case, (3), infinite if no division fits, and the number of the weakest case."""
        if len(covered) == 1 and covered[0].case == WHOLE:
            # In a case of racks some are empty because of where stage 0 lies.
            covered = (replace(covered[0], any_ring=float(covered[0].bound.rings.min())),)
        each = [self._solved(stages, case) for case in covered]
        weakest = min(range(len(each)), key=lambda place: each[place].seconds)
        found = each[weakest]
        if len(covered) > 1:
            pooled = CommunicationBound(
                rings=np.concatenate([case.bound.rings for case in covered]),
                longest=np.concatenate([case.bound.longest for case in covered]),
            )
            found = max(found, self._solved(stages, Covered(bound=pooled)), key=lambda one: one.seconds)
        return found, weakest

    def _solved(self, stages: PartitionProblem, covered: Covered) -> Partition:
        """The best division in one case; the latest solutions are kept, as most cases stay as they are."""
        bound, later = covered.bound, self._later(covered)
        tail = self.tail(bound)
        key = tail.tobytes() + (b"" if later is None else later.ring.tobytes() + later.each.tobytes())
        if key not in self._known:
            self._known[key] = solve_partition(stages, self.edge, tail, later=later)
        return self._known[key]

    def _later(self, covered: Covered) -> LaterStages | None:
        """What later stages wait for, (3)."""
        later, case = self.later, covered.case
        if later is None:
            return None
        longest, ring = self._weight * float(covered.bound.longest.min()), np.maximum(later.ring, covered.any_ring)
        if case.spanning:
            ring[case.confined] = max(ring[case.confined], covered.ring)
        hops = [longest - self.ways_back(longest, place) for place in range(len(ring))]
        return replace(later, ring=ring, each=np.maximum(np.array(hops) + float(self.fixed[-1]) - later.others, 0.0))

    def ways_back(self, longest: float, place: int) -> float:
        """Most seconds of the ways back of the longest path's first hops, (4), which takes ``longest`` at least."""
        slowest = place * self.slowest_back
        if not self._single and place > 1:
            return slowest
        rest = (self._hops - place) * self._shortest
        return min(slowest, self._share * max(longest - rest, 0.0))


def _ways_back(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, *, single: bool
) -> tuple[float, float, float]:
    """Most seconds of a way back, its share of a hop at most, and least seconds of a weighted hop."""
    links, tp, messages = problem.links, candidate.tp, problem.tables(candidate).message[1:-1]
    shared = 2 * candidate.width <= links.gpus_per_node.max()
    hop: PairTable = problem.transfer_weight(candidate) * links.hop_seconds(tp, float(messages.min()), both_ways=True)
    # A larger message adds no less to a hop than to its way back, so the smallest counts; but of several tensor ranks
    # one may be the slowest on the way back and another one in sum.
    message = float(messages.min() if single else messages.max())
    back: PairTable = problem.coefficient("pipeline") * (links.latency + message / links.pipeline_rate(tp))
    with np.errstate(invalid="ignore"):  # A node of one device has no hop inside.
        share = -(back / hop)
    slowest, most, shortest = (
        min(best.least_apart(figures), best.least_inside(figures) if shared else np.inf)
        for figures in (-back, share, hop)
    )
    return -slowest, -most if single else 1.0, shortest


class _Stage(CaseCertificate):
    confined: int
    spanning: bool


class _Witness(CaseCertificate):
    sha256: str


class _ByRacks(Section):
    racks: list[int]
    stages: list[_Stage]
    sha256: str


@cache
def _formats() -> "TypeAdapter[_Witness | _ByRacks]":
    return TypeAdapter(_Witness | _ByRacks)


def witness_of(rack: list[int] | None, by_case: Mapping[RackCase, CaseCertificate]) -> dict[str, Any]:
    """Case distinctions of racks, ``rack`` by node, or of ``WHOLE`` alone, as plain JSON values with the digest."""
    cases = [certificate.model_dump(mode="json", exclude_unset=True) for certificate in by_case.values()]
    if rack is None:
        return {**cases[0], "sha256": digest(cases[0])}
    named = [{"confined": case.confined, "spanning": case.spanning} for case in by_case]
    stages = [{**name, **values} for name, values in zip(named, cases, strict=True)]
    whole = {"racks": rack, "stages": stages}
    return {**whole, "sha256": digest(whole)}


def witnessed(problem: PlanningProblem, candidate: Candidate, witness: dict[str, Any]) -> tuple[Covered, ...] | None:
    """What a witness from anyone proves in each of its cases; None where it is malformed, altered or proves nothing."""
    try:
        parsed = _formats().validate_json(json.dumps(witness))
    except (ValidationError, TypeError, ValueError):
        return None
    if digest({name: value for name, value in witness.items() if name != "sha256"}) != parsed.sha256:
        return None
    graph = slot_graph(problem, candidate)
    if isinstance(parsed, _ByRacks):
        return _by_racks(graph, parsed)
    bound = certified_bound(graph, parsed)
    return None if bound is None else (Covered(bound=bound),)


def _by_racks(graph: SlotGraph, witness: _ByRacks) -> tuple[Covered, ...] | None:
    """What is proven in each case of racks; None where one is missing or unproven."""
    if len(witness.racks) != len(graph.hops) or not has_racks(graph):
        return None
    racks = known_racks(graph, np.array(witness.racks))
    cases = tuple(RackCase(confined=stage.confined, spanning=stage.spanning) for stage in witness.stages)
    if racks is None or not is_whole(racks, cases):
        return None
    covered = []
    for case, stage in zip(cases, witness.stages, strict=True):
        bound = certified_bound(racks.restricted(case), stage)
        if bound is None:
            return None
        covered.append(Covered(bound=bound, case=case, ring=racks.ring))
    return tuple(covered)
