r"""
Kinds of slots, subset solvers and ring costs of a problem, shared by the candidates that differ in compute alone.

Two slots are of one kind if exchanging them changes no link. Those of one node are, where the devices of a node are
interchangeable. Two that are alone in their nodes, or two devices of one node, are of one kind if for every table of
links M (latency, rate of pipeline transfers, rate of rings), their nodes' cards giving equal shares,

(1) :math:`M_{uw} = M_{vw}, \; M_{wu} = M_{wv}` for every other w, :math:`M_{uv} = M_{vu}, \; M_{uu} = M_{vv}`.

This is an equivalence (u and v are twins in every table), so a slot need only be compared with one of each kind.
"""

from dataclasses import dataclass, field

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.links import Links, PairTable
from taut.formulations.placement import slot_sites
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import RingRates, ring_by_byte
from taut.formulations.space import Candidate
from taut.solver.placement.exact.subset import SubsetSolver, few_multisets, other_slots

MAX_KINDS = 20
"""Kinds that are told apart: 20 slots of different kinds have a million multisets, near the most that are solved."""


def slot_kinds(links: Links, rings: RingRates, tp: int) -> Ints | None:
    """Kind of every slot (slots,), numbered from zero on; None where there are more than ``MAX_KINDS``."""
    sites, node = slot_sites(links, tp)[:, 0], links.node_of_site
    single = np.bincount(sites, minlength=links.num_sites) == 1
    # Devices of two nodes can change places only where each is all of its node.
    place = np.where(np.bincount(node)[node] == 1, -1, node)
    tables, card = (links.latency, links.pipeline_rate(tp), rings.inverse), rings.card[node]
    block_of, known = links.rate.blocks.of, np.full(len(links.rate.blocks.size), -1)
    first: list[int] = []
    kind_of = np.zeros(links.num_sites, np.int64)
    for v in range(links.num_sites):
        # Slots that are alone on nodes of one block are of one kind.
        kind = int(known[block_of[v]]) if single[v] else -1
        if kind < 0:
            alike = (
                c
                for c, u in enumerate(first)
                if single[u] and single[v] and place[u] == place[v] and card[u] == card[v]
            )
            kind = next((c for c in alike if _exchangeable(tables, first[c], v)), len(first))
        if kind == len(first):
            first.append(v)
        kind_of[v] = known[block_of[v]] = kind
        if len(first) > MAX_KINDS:
            return None
    return kind_of[sites]


def _exchangeable(tables: tuple[PairTable, ...], u: int, v: int) -> bool:
    """Whether two sites of different blocks can be exchanged, (1)."""
    for table in tables:
        b, c = table.blocks.of[[u, v]]
        apart = (table.apart[b] != table.apart[c]) | (table.apart[:, b] != table.apart[:, c])
        # Beside a site that is alone in its block there is no other one.
        apart[[b, c]] &= table.blocks.size[[b, c]] > 1
        if apart.any() or table.apart[b, c] != table.apart[c, b] or table.own[b] != table.own[c]:
            return False
    return True


CHUNK = 2_000_000
"""Links of start sets whose rings are priced in one array, which bounds memory."""


@dataclass
class SubsetCache:
    """Kinds of slots, subset solvers and ring costs, shared by the candidates that differ in compute alone."""

    _kinds: dict[int, Ints | None] = field(default_factory=dict)
    _few: dict[tuple[int, int], bool] = field(default_factory=dict)
    _solvers: dict[tuple[int, int, float], SubsetSolver] = field(default_factory=dict)
    _rings: dict[tuple[int, int, bool], Floats] = field(default_factory=dict)

    def has_few(self, problem: PlanningProblem, candidate: Candidate) -> bool:
        """Whether a candidate's slots have few multisets, so that the dynamic program is small enough."""
        key = (candidate.tp, candidate.pp)
        if key not in self._few:
            kinds = self._kinds_of(problem, candidate.tp)
            self._few[key] = kinds is not None and few_multisets(kinds, candidate.pp)
        return self._few[key]

    def all_differ(self, problem: PlanningProblem, candidate: Candidate) -> bool:
        """Whether every node holds one slot of a candidate, and every slot is of a kind of its own."""
        kinds, alone = self._kinds_of(problem, candidate.tp), problem.links.gpus_per_node == candidate.tp
        return kinds is not None and bool(alone.all()) and len(np.unique(kinds)) == len(kinds)

    def _kinds_of(self, problem: PlanningProblem, tp: int) -> Ints | None:
        """Kinds of the slots of tensor degree tp; None for too many."""
        if tp not in self._kinds:
            self._kinds[tp] = slot_kinds(problem.links, problem.rings, tp)
        return self._kinds[tp]

    def solver(self, problem: PlanningProblem, candidate: Candidate, message: float) -> SubsetSolver:
        """The solver of a candidate's slots with hops at a message of so many bytes."""
        key = (candidate.tp, candidate.pp, message)
        if key not in self._solvers:
            sites = slot_sites(problem.links, candidate.tp)[:, 0]
            hops = problem.links.hop_seconds(candidate.tp, message, both_ways=True)
            kinds = self._kinds_of(problem, candidate.tp)
            assert kinds is not None
            self._solvers[key] = SubsetSolver(hops[sites[:, None], sites[None, :]], kinds, candidate.pp)
        return self._solvers[key]

    def rings(
        self, problem: PlanningProblem, candidate: Candidate, solver: SubsetSolver, *, others: bool = False
    ) -> Floats:
        """Seconds per byte of the rings of start sets, or of what they leave to stage 1 of two (``others``)."""
        key = (candidate.tp, candidate.pp, others)
        if key not in self._rings:
            links = problem.links
            slots = other_slots(solver.start_sets) if others else solver.start_sets
            sites = slot_sites(links, candidate.tp)[:, 0][slots]
            parts = np.array_split(sites, -(-sites.size * candidate.dp // CHUNK))
            priced = [ring_by_byte(problem.rings, few, links.node_of_site[few]) for few in parts]
            self._rings[key] = np.concatenate(priced)
        return self._rings[key]
