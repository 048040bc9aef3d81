r"""
What no plan of a choice of meshes takes less than, wherever its devices are.

With :math:`t[x, i, j]` the least seconds of both passes of stage x on layers [i, j) over every recompute that fits and
the best tensor group that nodes of its type offer, :math:`f[x, i, j]` the least of its forward pass, each by itself, so
that they may be of two recomputes, and h the weight of a trip, step time (5) of ``taut.formulations.meshes.step_time``
is at least its term of any stage s:

(1) :math:`\sum_{x < s} f + \sum_{x \ge s} t + (m - 1) \max_x t + R_s + \max_x O + \sum_x c[x, j_x] + constant`, with
    the reduction R of stage s over its least ring, or what no backward pass hides of it, and the stages' optimizer O.
(2) The cut behind stage x, before layer :math:`j_x`, takes h times the least hop there and back; of cuts before stage s
    the longest way back is taken off, since the stage's gradients are ready before it is gone.
(3) A hop inside a mesh is at least the least one between two devices of the type, or of one node, and at most the
    longest one. Between meshes, ranks of one side hold M / n bytes each and of the other M / n'. A rank's pieces
    together take no less than all of its bytes on its best link:
    :math:`\sum_j (\lambda_j + f_j M / B_j) \ge \min_j (\lambda_j + M / B_j)` for shares f that add up to 1; nor more
    than as many latencies as it has pieces and all of its bytes on its worst one. Stage 0 also waits for the exchange
    of a tied embedding with the last stage, on nodes of another type, over the best link between both types.
(4) The least over all divisions of the largest of (1) over all stages s is bounded from below, to a unit of rounding
    and up to the limit (``taut.solver.layer_division.known_devices`` (2) to (5)). It is at least the largest over s of
    the least of (1), which may be of different divisions. That is at least :math:`\min \sum + (m - 1) \min \max`, two
    dynamic programs without a search over tolerances. These two take the first stage s of every mesh with its own O:
    later ones of a mesh end earlier and have like rings. Bounds are lowered by what rounding may have added.
(5) With :math:`c_k(l)` the least seconds of layer l on mesh k with any recompute, :math:`a = c_0`,
    :math:`r_k = \min_l c_k(l) / a(l)` and :math:`W = \sum_l a(l)`, layers of W in all are on the meshes: the sum of
    stages is at least :math:`W \min_k r_k`, and the slowest at least :math:`W / \sum_k (pp_k / r_k)`. This bound is
    below (4), without memory, hops and reductions, and takes no dynamic program.
(6) Of all choices whose pipeline takes B sequences at once, m = g / B micro-batches, whatever the order of their
    meshes: with a any one positive reference, :math:`r_k` the least and :math:`s_k` the largest :math:`pp_k / r_k` over
    the degrees of type k, at least :math:`W \min_k r_k + (m - 1) W / \sum_k s_k` as in (5). It takes the prices of
    layers alone, and is known before a choice is enumerated.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import least_bytes, seconds_of_best, tied_bytes
from taut.formulations.links import PairTable
from taut.formulations.mechanisms.offload import optimizer_seconds
from taut.formulations.mechanisms.shards import optimized_parameters, optimizer_shards
from taut.formulations.meshes.choice import Mesh, MeshChoice, meshes_of_type
from taut.formulations.meshes.step_time import common_shares, hop_inverse
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.tables.memory import stage_memory
from taut.solver.bounds.least_rings import ring_per_byte
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.known_devices import Waits, bottleneck, divide, divide_waited, least_sum
from taut.solver.result import SOLVED


class HopRange(NamedTuple):
    """Seconds of a hop there and back at least, and back at most, by the layer after the cut (L+1,)."""

    least: Floats
    most_back: Floats


def hop_range(problem: PlanningProblem, here: Mesh, there: Mesh, inverse: PairTable, message: Floats) -> HopRange:
    """Bound the hops of a rank's ``message`` (L+1,) bytes between stages of two meshes, or of one."""
    i, j = _sites(problem, here.kind)[:, None], _sites(problem, there.kind)[None, :]
    latency = problem.links.latency
    ways = [(latency[a, b], inverse[a, b]) for a, b in ((i, j), (j, i))]
    if here == there:
        apart = np.ones(ways[0][0].shape, bool) if problem.links.by_node else i != j
        (wait, each), (wait_back, each_back) = ways
        return HopRange(
            _extreme(wait + wait_back, each + each_back, message, apart)[0],
            _extreme(wait_back, each_back, message, apart)[1],
        )
    every = np.ones(ways[0][0].shape, bool)
    ratio = here.tp * here.dp / (there.tp * there.dp)
    least = sum(_extreme(wait, each, message * max(1.0, ratio), every)[0] for wait, each in ways)
    pieces = _most_pieces(here, there)
    most = _extreme(pieces * ways[1][0], ways[1][1], message * max(1.0, ratio), every)[1]
    return HopRange(np.asarray(least), most)


def _most_pieces(here: Mesh, there: Mesh) -> int:
    """The most pieces that a rank of either stage exchanges."""
    shares = common_shares(here.dp, there.dp) > 0, common_shares(here.tp, there.tp) > 0
    return max(int(np.prod([each.sum(axis=axis).max() for each in shares])) for axis in (0, 1))


def _extreme(wait: Floats, each: Floats, message: Floats, chosen: Flags) -> tuple[Floats, Floats]:
    """Least and most seconds of messages over chosen links with so many seconds of latency and seconds per byte."""
    pairs = np.unique(np.stack([wait[chosen], each[chosen]]), axis=1)
    seconds = pairs[0] + message[:, None] * pairs[1]
    return np.asarray(seconds.min(axis=1)), np.asarray(seconds.max(axis=1))


def _ratio(layers: Floats, reference: Floats) -> float:
    """Least ratio (5) of the layers that take any time; infinite where none does."""
    timed = reference > 0
    return float((layers[timed] / reference[timed]).min(initial=np.inf))


def _stages(mesh: Mesh, ratio: float) -> float:
    """Stages of a mesh in units of the reference, pp / r of (5)."""
    return mesh.pp / ratio if ratio else math.inf


def _sites(problem: PlanningProblem, kind: int) -> Ints:
    """Sites on nodes of a type."""
    return np.flatnonzero(problem.type_of_node[problem.links.node_of_site] == kind)


class Stage(NamedTuple):
    """Of every range (L+1, L+1): least seconds of both passes and forward, infinite where none fits; the recompute."""

    seconds: Floats
    forward: Floats
    recompute: Ints


class After(NamedTuple):
    """Least seconds of a stage's reduction, and of its optimizer, by range (L+1, L+1)."""

    reduction: Floats
    optimizer: Floats


@dataclass(eq=False)
class MeshBounds:
    """Bounds of the choices of a problem, with the figures that choices share."""

    problem: PlanningProblem
    _layers: dict[tuple[Candidate, int], Floats] = field(default_factory=dict)
    _stages: dict[tuple[Candidate, int, int], Stage] = field(default_factory=dict)
    _rings: dict[tuple[int, int, int, bool], float] = field(default_factory=dict)
    _exchanges: dict[tuple[int, int], float] = field(default_factory=dict)
    _hops: dict[tuple[tuple[Mesh, ...], int, int], HopRange] = field(default_factory=dict)

    def of_all(self, together: int) -> float:
        """The bound (6) of all choices that take so many sequences at once; infinite where there is none."""
        types, m = range(len(self.problem.device_types)), self.problem.space.global_batch // together
        every = [meshes_of_type(self.problem, kind, together) for kind in types]
        if not all(every):
            return math.inf
        layers = [[self._layer(mesh.candidate(2, 1), mesh.kind) for mesh in meshes] for meshes in every]
        reference = layers[0][0]
        ratios = [[_ratio(each, reference) for each in of_type] for of_type in layers]
        stages = [max(map(_stages, *both)) for both in zip(every, ratios, strict=True)]
        return self._of_work(float(reference.sum()), min(map(min, ratios)), sum(stages), m)

    def floor(self, choice: MeshChoice) -> float:
        """The bound (5), whether or not anything fits."""
        each = [self._layer(choice.candidate(k), mesh.kind) for k, mesh in enumerate(choice.meshes)]
        ratios = [_ratio(layers, each[0]) for layers in each]
        stages = sum(map(_stages, choice.meshes, ratios))
        return self._of_work(float(each[0].sum()), min(ratios), stages, choice.num_micro_batches)

    def _of_work(self, work: float, ratio: float, stages: float, m: int) -> float:
        """Seconds of W on stages in all, (5); taken down by what rounding may have added."""
        least = work * ratio + (m - 1) * work / stages if work else 0.0
        return least * (1 - SOLVED) + self.problem.constant_seconds

    def _layer(self, candidate: Candidate, kind: int) -> Floats:
        """Least seconds of every layer on a mesh, (L,)."""
        key = replace(candidate, pp=2, dp=1, num_micro_batches=1, zero=0), kind
        if key not in self._layers:
            allowed = [RECOMPUTE.index(name) for name in self.problem.recompute_of(candidate)]
            within = seconds_of_best(self.problem, candidate).both[kind] if candidate.tp > 1 else 0.0
            seconds = (self.problem.tables(candidate).seconds[kind] + within)[allowed].min(axis=0)
            self._layers[key] = np.diagonal(seconds, 1)
        return self._layers[key]

    def quick(self, choice: MeshChoice) -> float:
        """The bound (4) of two dynamic programs; infinite where nothing fits."""
        seconds = np.stack([stage.seconds for stage in self.stages(choice)])
        slowest = bottleneck(seconds)
        if not math.isfinite(slowest):
            return math.inf
        terms = map(self._waits(choice).term, choice.first_stages)
        least = max(least_sum(seconds, cuts, added) for added, cuts in terms)
        least += (choice.num_micro_batches - 1) * slowest + self.problem.constant_seconds
        return least * (1 - ROUNDING)

    def exact(self, choice: MeshChoice, limit: float = math.inf) -> tuple[float, list[Ints]]:
        """The bound (4) up to a limit, and ends of divisions that are near it; infinite where nothing fits."""
        waits, m, constant = self._waits(choice), choice.num_micro_batches, self.problem.constant_seconds
        terms = [waits.term(s) for s in choice.first_stages]
        found = [ends for added, cuts in terms if (ends := divide(waits.seconds, cuts, m, added)) is not None]
        if not found:
            return math.inf, []
        known = min(found, key=lambda ends: waits.longest(m, ends))
        bound, best = divide_waited(waits, m, known, limit - constant)
        return (bound + constant) * (1 - ROUNDING), [best, *found]

    def of_division(self, choice: MeshChoice, ends: Ints) -> float:
        """The largest of (1) of one division by the ends of its stages (P,); infinite where it does not fit."""
        return self._waits(choice).longest(choice.num_micro_batches, ends) + self.problem.constant_seconds

    def stages(self, choice: MeshChoice) -> list[Stage]:
        """Figures of every stage."""
        return [self._stage(choice.candidate(k), choice.meshes[k].kind, x) for x, k in enumerate(choice.mesh_of_stage)]

    def _stage(self, candidate: Candidate, kind: int, x: int) -> Stage:
        """Figures of stage x, which depend on x by what is in flight."""
        flight = min(candidate.pp - x, candidate.num_micro_batches)
        key = replace(candidate, pp=0), kind, flight
        if key not in self._stages:
            problem, several = self.problem, candidate.tp > 1
            memory, allowed = stage_memory(problem, candidate), problem.recompute_of(candidate)
            within = seconds_of_best(problem, candidate)
            seconds = problem.tables(candidate).seconds[kind] + (within.both[kind] if several else 0.0)
            forward = problem.passes(candidate).forward[kind] + (within.forward[kind] if several else 0.0)
            listed = np.array([name in allowed for name in RECOMPUTE])[:, None, None]
            fits = listed & (memory.need(x) <= memory.budget[kind])
            both, ahead = np.where(fits, seconds, np.inf), np.where(fits, forward, np.inf)
            self._stages[key] = Stage(both.min(axis=0), ahead.min(axis=0), both.argmin(axis=0))
        return self._stages[key]

    def _waits(self, choice: MeshChoice) -> Waits:
        """What (1) adds up."""
        stages, candidate = self.stages(choice), choice.candidate(0)
        weight, once = self.problem.transfer_weight(candidate), self.problem.coefficient("pipeline")
        ranges = [self._hop(choice, k, n) for k, n in pairwise(choice.mesh_of_stage)]
        whole = weight * np.stack([each.least for each in ranges])
        after = [self.after(choice, k) for k in range(len(choice.meshes))]
        reductions = np.stack([after[k].reduction for k in choice.mesh_of_stage])
        reductions[0] = np.maximum(reductions[0], self._tied(choice))
        return Waits(
            seconds=np.stack([stage.seconds for stage in stages]),
            forward=np.stack([stage.forward for stage in stages]),
            after=reductions,
            together=np.stack([after[k].optimizer for k in choice.mesh_of_stage]),
            cuts=whole,
            before=whole - once * np.stack([each.most_back for each in ranges]),
        )

    def after(self, choice: MeshChoice, k: int) -> After:
        """R and O of a stage of a mesh, (1)."""
        problem, candidate, kind = self.problem, choice.candidate(k), choice.meshes[k].kind
        update = optimized_parameters(problem.tables(candidate), candidate) / optimizer_shards(candidate)
        reduced = self._ring(choice.meshes[k]) * least_bytes(problem, candidate)
        return After(np.asarray(reduced), np.asarray(optimizer_seconds(problem, candidate)[kind] * update))

    def _tied(self, choice: MeshChoice) -> float:
        """Least seconds of the exchange of a tied embedding, (3)."""
        kinds, rings = (choice.meshes[0].kind, choice.meshes[-1].kind), self.problem.rings
        if kinds not in self._exchanges:
            i, j = _sites(self.problem, kinds[0])[:, None], _sites(self.problem, kinds[1])[None, :]
            cards = (rings.card[self.problem.links.node_of_site[sites]] for sites in (i, j))
            self._exchanges[kinds] = float(np.maximum(rings.inverse[i, j], np.maximum(*cards)).min())
        return self._exchanges[kinds] * tied_bytes(self.problem, choice.candidate(0))

    def _ring(self, mesh: Mesh) -> float:
        """Seconds per byte of a stage's ring at least, on as few of its type's nodes as hold it, up to all of them."""
        key = mesh.kind, mesh.tp, mesh.dp, mesh.pp == 1
        if key not in self._rings:
            own = self.problem.type_of_node == mesh.kind
            best, sizes = self._best.of_nodes(own), self.problem.links.gpus_per_node[own]
            fewest = len(sizes) if mesh.pp == 1 else -(-mesh.dp // int(sizes.max() // mesh.tp))
            spreads = best.telling(mesh.dp, range(fewest, min(mesh.dp, len(sizes)) + 1))
            self._rings[key] = 0.0 if mesh.dp == 1 else min(ring_per_byte(mesh.dp, k, best) for k in spreads)
        return self._rings[key]

    @cached_property
    def _best(self) -> BestLinks:
        return BestLinks(self.problem.links, self.problem.rings)

    def _hop(self, choice: MeshChoice, k: int, following: int) -> HopRange:
        """Seconds of a hop between stages of two meshes at least and back at most, by the layer after the cut, (3)."""
        key = choice.meshes, k, following
        if key not in self._hops:
            here, there = choice.meshes[k], choice.meshes[following]
            message = np.asarray(self.problem.tables(choice.candidate(k)).message, dtype=np.float64)
            self._hops[key] = hop_range(self.problem, here, there, hop_inverse(self.problem, choice), message)
        return self._hops[key]
