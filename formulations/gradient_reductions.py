r"""
What a step waits for after its last passes: reductions of gradients, and the optimizer.

Sets: stages x (pipeline ranks, where one has several chunks), replicas z, tensor ranks y. Replicas times context ranks
are the holders of the same weights.
Data: ``end[x, z]`` seconds at which the last pass of stage x yields gradients in replica z, ``backward[x, z]`` seconds
of one micro-batch's backward pass there; bytes and parameters of the stages; rates of rings.

(1) Reduction without overlap: :math:`T_{DP}[x]`, the seconds of the terms after the passes
    (``taut.formulations.terms`` (2)) over the parameters of the stage, one after another, on hierarchical rings
    (``taut.formulations.rings`` (2) and (3)).
(2) With overlap, buckets of :math:`\beta` parameters are reduced as the backward pass of the last micro-batch fills
    them. The last bucket, or what the pass is too short for, is left:

    .. math:: R_x = \max \Big( T_{DP}[x] \min(1, \beta / P_x), \; T_{DP}[x] - \max_z backward[x, z] \Big),

    where :math:`P_x` are parameters of one tensor rank; otherwise :math:`R_x = T_{DP}[x]`.
(3) A tied embedding has a copy on the first and the last stage, whose gradients M are summed between the two holders in
    a ring of two: :math:`R_{tied} = M / B`, B their slower direction, a node's cards shared by all its devices.
(4) The norm of all gradients is known when the last reduction ends, and the optimizer follows everywhere at once:

    .. math:: T = \max \big( \max_x (\max_z end[x, z] + R_x), \; \max(end \text{ of the holders}) + R_{tied} \big)
        + \max_x T_{opt}[x].

Without pipelining :math:`end` is the end of the step's only stage.

Bounds need the least seconds of these exchanges.

Sets: devices d of an order-priced candidate, each with v of the C chunks; ranges of layers.
Data: :math:`\rho` the least seconds of a reduction for each parameter; :math:`\beta` the parameters of a bucket; of
every range the parameters P and the most seconds b that its backward pass takes on any devices, for any recompute.

With overlap the reduction of a device with P parameters and a backward pass of B seconds shows
:math:`R = \max(\rho \min(P, \beta), \rho P - B)` at least, (2). Both terms have an affine minorant :math:`a + s P`:

(5) every chunk has a layer, so :math:`P_0 \le P \le P_1`, where :math:`P_0` are v times the fewest parameters of a
    layer and :math:`P_1` are all but C - v times those. :math:`\rho \min(P, \beta)` is concave, and no less than its
    chord between the two;
(6) :math:`B \le \kappa P`, where :math:`\kappa` is the largest b / P of all ranges. So :math:`R \ge (\rho - \kappa) P`;
(7) in ``interleaved-1f1b`` no pass ends after the first device's last one, since every gradient goes back to the first
    chunk. So a tied embedding's exchange follows all passes, and its least seconds are a minorant with s = 0.

The one that is largest at an even share of the parameters is taken. Without overlap :math:`R = \rho P`, unless (7)
is more.

The traffic within blocks takes its least seconds wherever a candidate's stages are placed. A block exchanges no faster
than on the best links that nodes of its device type offer; a single stage is on all blocks, so it is as slow as the
best block of the slowest node.

References
----------
Li et al. (2020), PyTorch Distributed: Experiences on accelerating data parallel training: buckets of (2).
Narayanan et al. (2021), Efficient large-scale language model training on GPU clusters: (3), section 4 of Megatron-LM.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.degrees import BlockShape
from taut.formulations.links import Links, PairTable
from taut.formulations.mechanisms.offload import optimizer_seconds
from taut.formulations.mechanisms.shards import optimized_parameters, optimizer_shards
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_by_byte
from taut.formulations.schedules.orders import ON_V, device_of_chunk
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import (
    ALONE,
    FIGURES,
    BlockLink,
    BlockSeconds,
    Traffic,
    best_block,
    block_seconds,
    blocks_of_nodes,
)
from taut.formulations.tables.stage_tables import StageTables
from taut.formulations.terms import Group, reductions_of

LEAST_BUCKET, BUCKET_PER_REPLICA = 40_000_000, 1_000_000
"""Parameters of a bucket of (2): Megatron-LM takes the larger of 40 million and one million for every holder."""


def bucket_parameters(candidate: Candidate) -> int:
    """Parameters of a gradient bucket, (2)."""
    return max(LEAST_BUCKET, BUCKET_PER_REPLICA * candidate.dp_cp)


def after_overlap(
    reduction: Floats, parameters: Floats | Ints | float, backward: Floats, candidate: Candidate
) -> Floats:
    """Seconds left of a ``reduction`` of so many parameters of a rank beside so many ``backward`` seconds, (2)."""
    last_bucket = np.minimum(1.0, bucket_parameters(candidate) / np.maximum(parameters, 1))
    return np.asarray(np.maximum(reduction * last_bucket, reduction - backward))


def overlaps(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Whether a candidate's reductions overlap its last backward pass; under ZeRO-2 and 3 none is left to overlap."""
    return problem.overlap_grad_reduce and problem.latency.waits_for_every_stage and candidate.zero < 2


def least_bytes(problem: PlanningProblem, candidate: Candidate, gradients: Floats | None = None) -> Floats:
    """Bytes of every range that no backward pass hides, (L+1, L+1), of the given ones or the common gradients, (2)."""
    gradients = problem.gradient_bytes(candidate) if gradients is None else gradients
    if not overlaps(problem, candidate):
        return gradients
    return after_overlap(gradients, problem.tables(candidate).parameters, np.array(np.inf), candidate)


def end_of_step(problem: PlanningProblem, strategy: Strategy, devices: Ints, ends: Floats, backward: Floats) -> Floats:
    """Seconds (...) until all gradients are reduced, of devices (..., pp, dp, tp cp) and ends (..., pp, dp), (4)."""
    ended = ends.max(axis=-1)
    reduced = ended + _reductions(problem, strategy, devices, backward)
    tied = np.maximum(ended[..., 0], ended[..., -1]) + tied_seconds(problem, strategy, devices)
    return np.asarray(np.maximum(reduced.max(axis=-1), tied))


def reduction_seconds(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Floats:
    """Seconds of the reductions of every stage without overlap, (..., pp), of devices (..., pp, dp, tp cp), (1)."""
    found = np.zeros(devices.shape[:-2])
    for term in reductions_of(problem.terms(strategy.candidate)):
        carried = problem.tables(strategy.candidate).carried(term.load)
        if carried.any():
            message = by_device(strategy, np.asarray(carried * term.bytes))
            found = found + message * term.rate(slowest_rings(problem, devices))
    return found


def slowest_rings(problem: PlanningProblem, devices: Ints) -> Callable[[Group], Floats]:
    """Seconds per byte of the slowest of a group's rings on every stage, (..., pp), by group."""
    return lambda group: ring_rates(problem, group, devices).max(axis=-1)


def ring_rates(problem: PlanningProblem, group: Group, devices: Ints) -> Floats:
    """Seconds per byte of the slowest ring at every place of a group's members, (..., pp, places)."""
    placed = group.of(devices)
    return np.zeros(placed.shape[:-2]) if group.members == 1 else hierarchical_ring(problem, placed)


def _reductions(problem: PlanningProblem, strategy: Strategy, devices: Ints, backward: Floats) -> Floats:
    """R of every stage, (..., pp), (1) and (2)."""
    candidate = strategy.candidate
    seconds = reduction_seconds(problem, strategy, devices)
    if candidate.dp_cp == 1 or not overlaps(problem, candidate):
        return seconds
    parameters = by_device(strategy, problem.tables(candidate).parameters)
    return after_overlap(seconds, parameters, backward.max(axis=-1), candidate)


def hierarchical_ring(problem: PlanningProblem, stage: Ints) -> Floats:
    """Seconds per byte (...) of the slowest of rings of members by rank, (..., members, ranks), (1)."""
    links = problem.links
    sites = links.site_of[np.swapaxes(stage, -1, -2)]
    if (sites == sites[..., :1, :]).all():
        # Every tensor rank has a ring over the same sites.
        sites = sites[..., :1, :]
    return np.asarray(ring_by_byte(problem.rings, sites, links.node_of_site[sites]).max(axis=-1))


def tied_bytes(problem: PlanningProblem, candidate: Candidate) -> float:
    """Gradient bytes of a tied embedding that first and last stage exchange, (3); 0 if one device has both."""
    alone = candidate.pp == 1 or candidate.schedule in ON_V
    if not problem.latency.waits_for_every_stage or alone or not problem.model.shares_embedding:
        return 0.0
    per_parameter = problem.coefficient("data_parallel") * problem.memory.parameter_bytes.gradient
    return float(per_parameter * problem.model.embedding_parameters(candidate.tp))


def tied_seconds(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Floats:
    """R_tied of the slowest pair of holders, (3)."""
    message = tied_bytes(problem, strategy.candidate)
    if message == 0.0:
        return np.zeros(devices.shape[:-3])
    links, card = problem.links, problem.rings.card
    first, last = links.site_of[devices[..., 0, :, :]], links.site_of[devices[..., -1, :, :]]
    nodes = links.node_of_site[first], links.node_of_site[last]
    shared = np.where(nodes[0] == nodes[1], 0.0, np.maximum(card[nodes[0]], card[nodes[1]]))
    inverse = np.maximum(problem.rings.inverse[first, last], shared)
    return np.asarray(message * inverse.max(axis=(-1, -2)))


def optimizer_by_stage(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Floats:
    """T_opt of every stage (..., pp) on its slowest device type, in seconds, of devices (..., pp, dp, tp)."""
    if problem.has_muon:
        seconds = by_device(strategy, problem.tables(strategy.candidate).under_muon.seconds)
        return np.asarray(np.broadcast_to(seconds, devices.shape[:-2]))
    types = problem.type_of_node[problem.links.node_of[devices]]
    seconds = optimizer_seconds(problem, strategy.candidate)[types].max(axis=(-1, -2))
    parameters = by_device(strategy, optimized_parameters(problem.tables(strategy.candidate), strategy.candidate))
    return np.asarray(seconds * parameters / optimizer_shards(strategy.candidate))


def by_device(strategy: Strategy, figures: Floats | Ints) -> Floats:
    """Figures of ranges (L+1, L+1), summed over the chunks of every pipeline rank, (pp,)."""
    _, first, end = strategy.ranges
    return by_device_of(strategy.candidate, figures[first, end])


def by_device_of(candidate: Candidate, figures: Floats | Ints) -> Floats:
    """Figures of stages or chunks (X, ...), summed over the chunks of every pipeline rank, (pp, ...)."""
    total = np.zeros((candidate.pp, *figures.shape[1:]))
    np.add.at(total, _device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp), figures)
    return total


_device_of_chunk = lru_cache(maxsize=256)(device_of_chunk)
"""Every price asks for it several times."""


def seconds_within(problem: PlanningProblem, candidate: Candidate) -> BlockSeconds:
    """Seconds of the traffic within blocks of every range, over the best block that nodes of each type offer."""
    if candidate.width == 1:
        return ALONE
    links, tables = problem.links, problem.tables(candidate)
    kinds = [problem.type_of_node == kind for kind in range(len(problem.device_types))]
    if candidate.pp == 1 and candidate.width <= links.gpus_per_node.max():
        every = [_at_slowest(tables, links, of_type, candidate.block) for of_type in kinds]
        return BlockSeconds(*(np.stack(figures) for figures in zip(*every, strict=True)))
    return seconds_of_best(problem, candidate)


def seconds_of_best(problem: PlanningProblem, candidate: Candidate) -> BlockSeconds:
    """Seconds of the traffic within blocks of every range, over the best block that nodes of each type offer."""
    if candidate.width == 1:
        return ALONE
    tables, kinds = problem.tables(candidate), range(len(problem.device_types))
    each = [best_block(problem.links, problem.type_of_node == k, candidate.block) for k in kinds]
    return block_seconds(tables.traffic, tables.forward, each)


def least_within(problem: PlanningProblem, candidate: Candidate, traffic: Traffic) -> Floats:
    """Seconds of some traffic within a block over the best block that nodes of any type offer."""
    if candidate.width == 1:
        return np.zeros(())
    kinds = range(len(problem.device_types))
    each = [best_block(problem.links, problem.type_of_node == k, candidate.block) for k in kinds]
    return np.asarray(np.min([traffic.seconds(link) for link in each], axis=0))


def _at_slowest(tables: StageTables, links: Links, of_type: Flags, block: BlockShape) -> tuple[Floats, Floats]:
    """Seconds of the slowest block on nodes of one type at least, where they hold a stage each: the slowest node's."""
    figures = np.unique(blocks_of_nodes(links, block).T[of_type], axis=0)
    each = block_seconds(tables.traffic, tables.forward, (BlockLink(*figure) for figure in figures.tolist()))
    return each.both.max(axis=0), each.forward.max(axis=0)


class LeastReduction(NamedTuple):
    """Seconds a, and seconds s for each parameter of a device."""

    constant: float
    slope: float

    def at(self, parameters: float) -> float:
        """Seconds of a device with so many parameters."""
        return self.constant + self.slope * parameters


def least_reduction(
    problem: PlanningProblem, candidate: Candidate, ring: float, tied: float, hosted: int
) -> LeastReduction:
    """Minorant of a device's reduction at least seconds ``ring`` a parameter and ``tied``, of v ``hosted`` chunks."""
    even = float(problem.tables(candidate).parameters[0, -1]) / candidate.pp
    return max(minorants(problem, candidate, ring, tied, hosted), key=lambda each: each.at(even))


def minorants(
    problem: PlanningProblem, candidate: Candidate, ring: float, tied: float, hosted: int
) -> list[LeastReduction]:
    """Every affine minorant, (5) to (7), by the arguments of ``least_reduction``."""
    choices = [LeastReduction(0.0, ring)]
    if overlaps(problem, candidate):
        choices = [_of_last_bucket(problem, candidate, ring, hosted), _beyond_backward(problem, candidate, ring)]
    if candidate.schedule == "interleaved-1f1b":
        choices.append(LeastReduction(tied, 0.0))
    return choices


def _of_last_bucket(problem: PlanningProblem, candidate: Candidate, ring: float, hosted: int) -> LeastReduction:
    """Minorant (5)."""
    parameters = problem.tables(candidate).parameters
    layer, whole = float(np.diagonal(parameters, 1).min()), float(parameters[0, -1])
    most = whole - (candidate.pp - 1) * hosted * layer
    return chord_of_bucket(ring, hosted * layer, most, bucket_parameters(candidate))


def chord_of_bucket(ring: float, least: float, most: float, bucket: int) -> LeastReduction:
    r"""The chord of :math:`\rho \min(P, \beta)` between the least and the most parameters of a device, (5)."""
    low, high = ring * min(least, bucket), ring * min(most, bucket)
    slope = (high - low) / (most - least) if most > least else 0.0
    return LeastReduction(low - slope * least, slope)


def _beyond_backward(problem: PlanningProblem, candidate: Candidate, ring: float) -> LeastReduction:
    """Minorant (6)."""
    tables, backward = problem.tables(candidate), _most_backward(problem, candidate)
    rising = np.triu_indices(tables.num_layers + 1, 1)
    seconds, parameters = backward[rising], tables.parameters[rising]
    # A range without parameters has no rate: where its backward pass takes time, (6) says nothing.
    rate = np.where(seconds > 0, np.inf, 0.0)
    np.divide(seconds, parameters, out=rate, where=parameters > 0)
    return LeastReduction(0.0, max(ring - float(rate.max()), 0.0))


def _most_backward(problem: PlanningProblem, candidate: Candidate) -> Floats:
    """Most seconds of every range's backward pass, on any devices and with any recompute, (L+1, L+1)."""
    ranges, tables = problem.passes(candidate), problem.tables(candidate)
    allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
    whole = (ranges.input_gradient + ranges.weight_gradient)[:, allowed].max(axis=(0, 1))
    if candidate.width == 1:
        return np.asarray(whole)
    within = tables.traffic.at(np.array(allowed)).less(tables.forward).seconds(_slowest(problem.links))
    return np.asarray(whole + within.max(axis=0))


def _slowest(links: Links) -> BlockLink:
    """Figures of a block that none has more of: the slowest pair or share of a node's cards, and largest latency."""
    inverse = max(_largest(1.0 / links.rate), float((links.gpus_per_node / links.cards).max()))
    waits = {name: _largest(links.latency) for name in BlockLink._fields if "latency" in name}
    return BlockLink(*[inverse] * FIGURES)._replace(**waits)


def _largest(figures: PairTable) -> float:
    """The largest figure of any two sites, or of one with itself."""
    return max(float(figures.present().max(initial=0.0)), float(figures.by_site().max()))
