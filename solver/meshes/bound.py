r"""
What no plan of a choice of meshes takes less than, wherever its devices are.

With :math:`t[x, i, j]` the seconds of stage x on layers [i, j) with the cheapest recompute that fits, over the best
tensor group that nodes of its type offer, and h the weight of a trip, step time (5) of
``taut.formulations.meshes.step_time`` is at least its term of stage 0:

(1) :math:`\sum_x t + (m - 1) \max_x t + \sum_x c[x, j_x] + constant`, where the cut behind stage x, before layer
    :math:`j_x`, takes h times the least hop there and back, and that behind stage 0 also its optimizer and its
    gradients' least ring, or what no backward pass hides of it.
(2) A hop inside a mesh is at least the least one between two devices of the type, or of one node. Between meshes, ranks
    of one side hold M / n bytes each and of the other M / n'. A rank's pieces together take no less than all of its
    bytes on its best link: :math:`\sum_j (\lambda_j + f_j M / B_j) \ge \min_j (\lambda_j + M / B_j)` for shares f that
    add up to 1. The larger of both counts, there and back apart.
(3) The least of (1) over all divisions is found exactly (``taut.solver.stage_division``). It is at least
    :math:`\min \sum + (m - 1) \min \max`, two dynamic programs without a search over tolerances.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import least_bytes, optimized_parameters, optimizer_shards
from taut.formulations.meshes.choice import Mesh, MeshChoice
from taut.formulations.meshes.step_time import hop_inverse
from taut.formulations.pair_table import PairTable
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.least_traffic import seconds_of_best
from taut.solver.bounds.least_rings import least_ring
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.stage_division import bottleneck, divide, least_sum


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Least seconds of every stage and range (P, L+1, L+1), infinite where none fits, and the recompute of each."""

    seconds: Floats
    recompute: Ints


@dataclass(eq=False)
class MeshBounds:
    """Bounds of the choices of a problem, with the figures that choices share."""

    problem: PlanningProblem
    _stages: dict[tuple[Candidate, int, int], tuple[Floats, Ints]] = field(default_factory=dict)
    _rings: dict[tuple[int, int, int], float] = field(default_factory=dict)
    _hops: dict[tuple[tuple[Mesh, ...], int, int, int], Floats] = field(default_factory=dict)

    def quick(self, choice: MeshChoice) -> float:
        """The bound (3) of two dynamic programs; infinite where nothing fits."""
        seconds, cuts = self.stages(choice).seconds, self.cuts(choice)
        slowest = bottleneck(seconds)
        if not math.isfinite(slowest):
            return math.inf
        total = least_sum(seconds, cuts) + (choice.num_micro_batches - 1) * slowest
        return total + self.problem.constant_seconds

    def exact(self, choice: MeshChoice) -> tuple[float, Ints | None]:
        """The least of (1) with the ends of its stages; infinite and None where nothing fits."""
        seconds, cuts = self.stages(choice).seconds, self.cuts(choice)
        ends = divide(seconds, cuts, choice.num_micro_batches)
        if ends is None:
            return math.inf, None
        each = seconds[np.arange(choice.pp), np.concatenate([[0], ends[:-1]]), ends]
        total = each.sum() + (choice.num_micro_batches - 1) * each.max()
        return float(total + cuts[np.arange(choice.pp - 1), ends[:-1]].sum()) + self.problem.constant_seconds, ends

    def stages(self, choice: MeshChoice) -> StageTimes:
        """Seconds t of every stage and range, with its recompute."""
        found = [self._stage(choice.candidate(k), choice.meshes[k].kind, x) for x, k in enumerate(choice.mesh_of_stage)]
        seconds, recompute = zip(*found, strict=True)
        return StageTimes(np.stack(seconds), np.stack(recompute))

    def _stage(self, candidate: Candidate, kind: int, x: int) -> tuple[Floats, Ints]:
        """Least seconds and recompute of every range on stage x, which depend on x by what is in flight."""
        flight = min(candidate.pp - x, candidate.num_micro_batches)
        key = replace(candidate, pp=0), kind, flight
        if key not in self._stages:
            memory, allowed = self.problem.stage_memory(candidate), self.problem.recompute_of(candidate)
            within = seconds_of_best(self.problem, candidate).both
            seconds = self.problem.tables(candidate).seconds[kind] + (within[kind] if candidate.tp > 1 else 0.0)
            listed = np.array([name in allowed for name in RECOMPUTE])[:, None, None]
            fitting = np.where(listed & (memory.need(x) <= memory.budget[kind]), seconds, np.inf)
            self._stages[key] = fitting.min(axis=0), fitting.argmin(axis=0)
        return self._stages[key]

    def cuts(self, choice: MeshChoice) -> Floats:
        """Seconds c of every cut (P - 1, L+1), (1)."""
        problem, candidate, of_stage = self.problem, choice.candidate(0), choice.mesh_of_stage
        weight = problem.transfer_weight(candidate)
        cuts = np.stack([weight * self._hop(choice, k, n) for k, n in pairwise(of_stage)])
        bytes_left = least_bytes(problem, candidate)[0]
        update = optimized_parameters(problem, candidate)[0] / optimizer_shards(candidate)
        first = self._ring(candidate, choice.meshes[0].kind) * bytes_left
        cuts[0] += first + problem.optimizer_seconds[choice.meshes[0].kind] * update
        return cuts

    def _ring(self, candidate: Candidate, kind: int) -> float:
        """Seconds per byte of a stage's ring at least."""
        key = kind, candidate.tp, candidate.dp
        if key not in self._rings:
            best = self._best.of_nodes(self.problem.type_of_node == kind)
            self._rings[key] = 0.0 if candidate.dp == 1 else least_ring(self.problem, candidate, best)
        return self._rings[key]

    @cached_property
    def _best(self) -> BestLinks:
        return BestLinks(self.problem.links, self.problem.rings)

    def _hop(self, choice: MeshChoice, k: int, following: int) -> Floats:
        """Least seconds of a hop there and back between stages of two meshes, by the layer after the cut, (2)."""
        key = choice.meshes, choice.num_micro_batches, k, following
        if key not in self._hops:
            here, there = choice.meshes[k], choice.meshes[following]
            message = np.asarray(self.problem.tables(choice.candidate(k)).message, dtype=np.float64)
            inverse = hop_inverse(self.problem, choice)
            if k == following:
                self._hops[key] = self._inside(here, inverse, message)
            else:
                message = message * max(1.0, here.tp * here.dp / (there.tp * there.dp))
                self._hops[key] = self._between(here, there, inverse, message)
        return self._hops[key]

    def _inside(self, mesh: Mesh, inverse: PairTable, message: Floats) -> Floats:
        sites = self._sites(mesh.kind)
        i, j = sites[:, None], sites[None, :]
        latency = self.problem.links.latency
        wait, each = latency[i, j] + latency[j, i], inverse[i, j] + inverse[j, i]
        apart = np.ones(wait.shape, bool) if self.problem.links.by_node else ~np.eye(len(sites), dtype=bool)
        return _least(wait[apart], each[apart], message)

    def _between(self, here: Mesh, there: Mesh, inverse: PairTable, message: Floats) -> Floats:
        i, j = self._sites(here.kind)[:, None], self._sites(there.kind)[None, :]
        latency = self.problem.links.latency
        forth = _least(latency[i, j].ravel(), inverse[i, j].ravel(), message)
        return forth + _least(latency[j, i].ravel(), inverse[j, i].ravel(), message)

    def _sites(self, kind: int) -> Ints:
        """Sites on nodes of a type."""
        links = self.problem.links
        return np.flatnonzero(self.problem.type_of_node[links.node_of_site] == kind)


def _least(wait: Floats, each: Floats, message: Floats) -> Floats:
    """Least seconds of messages over links with so many seconds of latency and seconds per byte."""
    pairs = np.unique(np.stack([wait, each]), axis=1)
    return np.asarray((pairs[0] + message[:, None] * pairs[1]).min(axis=1))
