"""Kinds of slots, subset solvers and ring costs of a problem, shared by the candidates that differ in compute alone."""

from dataclasses import dataclass, field

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.placement import slot_sites
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_by_byte
from taut.formulations.space import Candidate
from taut.solver.placement.exact.slot_kinds import slot_kinds
from taut.solver.placement.exact.subset import SubsetSolver, few_multisets
from taut.solver.placement.exact.two_stages import other_slots

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
        """
        Say whether a candidate's slots have few multisets.

        Returns whether the dynamic program is small enough.
        """
        key = (candidate.tp, candidate.pp)
        if key not in self._few:
            kinds = self._kinds_of(problem, candidate.tp)
            self._few[key] = kinds is not None and few_multisets(kinds, candidate.pp)
        return self._few[key]

    def all_differ(self, problem: PlanningProblem, candidate: Candidate) -> bool:
        """
        Say whether no two slots of a candidate can be exchanged, each being a node.

        Returns whether every node holds one slot and every slot is of a kind of its own.
        """
        kinds, alone = self._kinds_of(problem, candidate.tp), problem.links.gpus_per_node == candidate.tp
        return kinds is not None and bool(alone.all()) and len(np.unique(kinds)) == len(kinds)

    def _kinds_of(self, problem: PlanningProblem, tp: int) -> Ints | None:
        """Kinds of the slots of tensor degree tp; None for too many."""
        if tp not in self._kinds:
            self._kinds[tp] = slot_kinds(problem.links, problem.rings, tp)
        return self._kinds[tp]

    def solver(self, problem: PlanningProblem, candidate: Candidate, message: float) -> SubsetSolver:
        """
        Look up the dynamic program of a candidate's slots.

        ``message``: bytes that price the hops. Returns shared by candidates with the same degrees and message.
        """
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
        """
        Price the rings of a solver's start sets.

        ``problem``, ``candidate``, ``solver``: links, degrees, and the dynamic program; ``others``: whether rings of
        the slots that start sets leave to stage 1 of two are meant. Returns seconds per gradient byte, (start sets,).
        """
        key = (candidate.tp, candidate.pp, others)
        if key not in self._rings:
            links = problem.links
            slots = other_slots(solver.start_sets) if others else solver.start_sets
            sites = slot_sites(links, candidate.tp)[:, 0][slots]
            parts = np.array_split(sites, -(-sites.size * candidate.dp // CHUNK))
            priced = [ring_by_byte(problem.rings, few, links.node_of_site[few]) for few in parts]
            self._rings[key] = np.concatenate(priced)
        return self._rings[key]
