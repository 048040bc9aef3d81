r"""
Placement of a strategy's workers: a min-max assignment of positions to sites.

Sets: positions :math:`p = z \cdot pp + x` (replica z, stage x), each holding R sites; a site is a node or a device as
in ``taut.formulations.links``. With w devices of a block, R = 1 where the devices of a node are interchangeable
and a block lies in one node, R = w / node size where it fills whole nodes, R = w where devices were measured one by
one.
Data: seconds t[x, k] of stage x on device type k, with the traffic of its block over the block's slowest link; hop
seconds :math:`\lambda_{ab} + M_x / B_{ab}` between sites, summed both ways unless priced one way, for
messages of :math:`M_x` bytes; gradient bytes by stage; m micro-batches; h the weight of the trip.
Variables: the site of every (position, rank y). Constraint: a node's site appears as often as it has blocks, any other
once; a block lies in one node, or fills whole nodes.
Objective, in seconds:

(1) :math:`\max_z \big[ \sum_x t + (m - 1) \max_x t + h \max_y \sum_x hop \big] + T_{DP}`,

with :math:`T_{DP}` as in ``taut.formulations.latency`` eq. (5); where every stage is waited for

(2) :math:`\max \big( \max_x (\max_z T_{pipe}[z] - lag[x, z] + R_x), \; \max_z T_{pipe}[z] + R_{tied} \big)`, where the
    lag of a stage are the backward passes and gradient hops of the stages before it
    (``taut.formulations.gradient_reductions``).

It equals that evaluator's step time without the
optimizer, and exists because a search prices millions of placements one small change at a time. Of a schedule that is
priced by its order it is a guide alone: stage x stands for the chunks of device x, and hops are those of the first
chunks. So it is with context and expert ranks: a ring of gradients then counts a block as one member, and a block
of several nodes has the traffic of its tensor groups and the exchanges of its experts on the best links.

As a quadratic assignment problem (Koopmans and Beckmann) positions are tensor groups and sites their slots s. Flow
:math:`F_{pq}` is in bytes of a step on one tensor rank, distance :math:`D_{st} = 1 / B_{st}` in seconds per byte, the
rate inside the node for two slots of one node:

(3) pipelines, :math:`F_{pq} = F_{qp} = h M_x` between stages x and x + 1 of a replica;
(4) rings, :math:`F_{pq} = 2 \frac{dp - 1}{dp} G_x` from a replica to the next, and from the last to the first,
    :math:`G_x` being the gradient bytes of stage x that are priced;
(5) :math:`\min \sum_{pq} F_{pq} D_{f(p) f(q)}` over permutations f, the slot of every position: the seconds of all
    transfers one after the other. The sum replaces the maxima of the step time, which pays the slowest pipeline and the
    slowest ring alone, so (5) is a surrogate and no bound. What a tensor group exchanges stays in its slot.

Sources: Yim et al. (2024), Pipette, eqs. 3-6, on which (1) is built; T. C. Koopmans and M. Beckmann, Assignment
problems and the location of economic activities, Econometrica 25 (1957).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.assignment import QuadraticAssignment
from taut.formulations.gradient_reductions import after_overlap, by_device_of, overlaps, tied_bytes
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.links import Links, PairTable
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.memory import stage_memory
from taut.formulations.terms import Ring, reductions_of


@dataclass(frozen=True)
class PlacementProblem:
    """
    Arrays of the placement problem of one strategy; S sites, slots (pp * dp, R).

    ``stage_seconds`` (pp, types) are infinite where a stage does not fit the type; ``ring_bytes`` and ``ring_steps``
    (pp,) turn a group's slowest inverse rate and latency into seconds; ``messages`` (pp - 1,) and ``gradients`` (pp,)
    are bytes, the latter over ``rings`` one after another, zero for stages whose reduction is not priced; ``priced``
    are the leading stages that may be waited for; ``ends`` are those of ``step``, None in the papers' models.
    """

    problem: PlanningProblem
    strategy: Strategy
    ranks: int
    slots: Ints
    stage_seconds: Floats
    ring_bytes: Floats
    ring_steps: Floats
    hop_latency: PairTable
    hop_inverse: PairTable
    messages: Floats
    gradients: Floats
    rings: tuple[Ring, ...]
    priced: int
    ends: "StageEnds | None"

    @property
    def candidate(self) -> Candidate:
        """Degrees of the strategy."""
        return self.strategy.candidate

    @property
    def links(self) -> Links:
        """Links of the cluster."""
        return self.problem.links

    def cost(self, positions: Ints) -> float:
        """Step time of the sites of every position (pp dp, R), in seconds, by the one evaluator."""
        return float(step_time(self.problem, self.strategy, self.devices(positions)).total)

    def violations(self, positions: Ints) -> tuple[str, ...]:
        """Constraints that the sites of every position (pp dp, R) break: sites used too often, blocks torn apart."""
        if sorted(positions.ravel().tolist()) != sorted(self.slots.ravel().tolist()):
            return ("the sites are not used as often as they have blocks",)
        if not self.links.by_node:
            size = int(self.links.gpus_per_node.max())
            allowed = max(self.candidate.width // size, 1)
            nodes = self.links.node_of_site[positions]
            if any(len(set(group)) > allowed for group in nodes.tolist()):
                return (f"a block lies on more than {allowed} nodes",)
        return ()

    def devices(self, positions: Ints) -> Ints:
        """Device of every worker (pp, pipelines, width), of the sites of every position (pp dp, R)."""
        candidate, links = self.candidate, self.links
        if not links.by_node:
            devices = positions
        else:
            share = candidate.width // self.ranks
            first = np.concatenate([[0], np.cumsum(links.gpus_per_node)])[:-1]
            taken = _occurrence(positions.ravel()).reshape(positions.shape)
            start = first[positions] + share * taken
            devices = (start[..., None] + np.arange(share)).reshape(len(positions), candidate.width)
        return np.asarray(devices.reshape(candidate.pipelines, candidate.pp, candidate.width).swapaxes(0, 1))


@dataclass(frozen=True)
class StageEnds:
    """
    What decides when a stage has reduced its gradients, (2): backward seconds (pp, types) of a micro-batch.

    ``ring_bytes`` and ``ring_steps`` (pp,) are of its all-reduces, ``unhidden`` (pp,) the share of a reduction that no
    backward pass hides, where ``overlap`` hides the rest, and ``tied`` bytes of a tied embedding.
    """

    backward_seconds: Floats
    ring_bytes: Floats
    ring_steps: Floats
    unhidden: Floats
    overlap: bool
    tied: float


def _occurrence(values: Ints) -> Ints:
    """For every entry, how many equal ones stand before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(ordered)])
    counts = np.empty(len(values), dtype=np.int64)
    counts[order] = np.arange(len(values)) - np.repeat(starts, lengths)
    return counts


def placement_problem(problem: PlanningProblem, strategy: Strategy) -> PlacementProblem:
    """The placement problem of a strategy."""
    candidate, links = strategy.candidate, problem.links
    tables, budget = problem.tables(candidate), stage_memory(problem, candidate).budget
    recompute, first, end = strategy.ranges

    def by_device(figures: Floats) -> Floats:
        return by_device_of(candidate, figures)

    seconds = by_device(tables.seconds[:, recompute, first, end].T)
    need = np.array(memory_bytes(problem, strategy))
    fits = need[:, None] <= budget[None, :]
    exchanged = problem.gradient_bytes(candidate) + problem.gradient_bytes(candidate, "experts")
    gradients = by_device(exchanged[first, end])
    if problem.latency.waits_for_first_stage:
        gradients = np.where(np.arange(candidate.pp) == 0, gradients, 0.0)
    gradients = gradients if candidate.pipelines > 1 else np.zeros(candidate.pp)
    traffic = tables.traffic.at(recompute, first, end)
    anywhere, ring_bytes, steps = traffic.by_place(links, candidate.block)
    ends = _stage_ends(problem, strategy, by_device) if problem.latency.waits_for_every_stage else None
    rings = reductions_of(problem.terms(candidate))[0].rings
    share = sum(ring.share for ring in rings)
    inverse = 1.0 / links.pipeline_rate(candidate.width)
    both_ways = problem.latency.both_ways
    slots = slot_sites(links, candidate.width)
    return PlacementProblem(
        problem=problem,
        strategy=strategy,
        ranks=slots.shape[1],
        slots=slots,
        stage_seconds=np.where(fits, seconds + by_device(anywhere)[:, None], np.inf),
        ring_bytes=by_device(ring_bytes),
        ring_steps=by_device(steps),
        hop_latency=links.latency + links.latency.T if both_ways else links.latency,
        hop_inverse=inverse + inverse.T if both_ways else inverse,
        messages=tables.message[end[: candidate.pp - 1]],
        gradients=gradients,
        rings=rings,
        priced=max(int(np.count_nonzero(gradients)), 1) if ends is None else _priced(problem, gradients, ends, share),
        ends=ends,
    )


def _stage_ends(problem: PlanningProblem, strategy: Strategy, by_device: Callable[[Floats], Floats]) -> StageEnds:
    """What decides the ends of stages in ``step``; with several chunks a device a lag is one chunk's."""
    candidate, tables = strategy.candidate, problem.tables(strategy.candidate)
    recompute, first, end = strategy.ranges
    passes, chunks = problem.passes(candidate), candidate.vpp
    backward = (passes.input_gradient + passes.weight_gradient)[:, recompute, first, end]
    later = tables.traffic.at(recompute, first, end).less(tables.forward.at(first, end))
    anywhere, ring_bytes, steps = later.by_place(problem.links, candidate.block)
    overlap = overlaps(problem, candidate)
    parameters = by_device(tables.parameters[first, end].astype(float))
    unhidden = after_overlap(np.ones(candidate.pp), parameters, np.array(np.inf), candidate)
    return StageEnds(
        backward_seconds=by_device(backward.T + anywhere[:, None]) / chunks,
        ring_bytes=by_device(ring_bytes) / chunks,
        ring_steps=by_device(steps) / chunks,
        unhidden=unhidden if overlap else np.ones(candidate.pp),
        overlap=overlap,
        tied=tied_bytes(problem, candidate),
    )


def _priced(problem: PlanningProblem, gradients: Floats, ends: StageEnds, share: float) -> int:
    """Leading stages that a step may wait for: the slowest ring of a later one is over before stage 0 ends."""
    rings = problem.rings
    dp = problem.cluster.num_devices
    between = max(float(rings.inverse.present().max(initial=0.0)), float(rings.card.max()))
    inside = max(float(rings.inverse.own.max()), between)
    worst = share * (inside_factor(dp) * inside + ring_factor(dp) * between)
    least = np.cumsum(ends.backward_seconds.min(axis=1)) - ends.backward_seconds.min(axis=1)
    return int(np.flatnonzero(worst * gradients > least).max(initial=0)) + 1


def slot_sites(links: Links, width: int) -> Ints:
    """Sites of every place that blocks of so many devices can take, (slots, R), in device order."""
    if not links.by_node:
        return np.arange(links.num_sites).reshape(-1, width)
    if width > links.gpus_per_node.max():
        return np.arange(links.num_nodes).reshape(-1, width // int(links.gpus_per_node[0]))
    return np.repeat(np.arange(links.num_nodes), links.gpus_per_node // width)[:, None]


def placement_assignment(given: PlacementProblem) -> QuadraticAssignment:
    """The quadratic assignment (5) of a strategy's tensor groups to slots, in bytes and seconds per byte."""
    problem = given.problem
    name = f"{problem.model.name} on {problem.cluster.name}"
    return QuadraticAssignment(flow=group_flow(given), distance=slot_distance(given), name=name)


def hop_flow(given: PlacementProblem) -> Floats:
    """Bytes of a step between every stage and the next, one way, (pp - 1,), by (3)."""
    weight = given.problem.transfer_weight(given.candidate)
    return np.broadcast_to(np.asarray(weight * given.messages, dtype=float), (given.candidate.pp - 1,))


def replica_flow(given: PlacementProblem) -> Floats:
    """Bytes of a step from a replica of every stage to the next one, (pp,), by (4)."""
    per_stage = ring_factor(given.candidate.pipelines) * np.asarray(given.gradients, dtype=float)
    return np.broadcast_to(per_stage, (given.candidate.pp,))


def group_flow(given: PlacementProblem) -> Floats:
    """Bytes of a step from every position to every other, (dp pp, dp pp), by (3) and (4)."""
    return trip_flow(given) + ring_flow(given)


def trip_flow(given: PlacementProblem) -> Floats:
    """Bytes of activations and gradients between stages, (dp pp, dp pp), by (3)."""
    flow, position = _empty(given)
    hops = np.broadcast_to(hop_flow(given), (given.candidate.pipelines, given.candidate.pp - 1))
    flow[position[:, :-1], position[:, 1:]] = flow[position[:, 1:], position[:, :-1]] = hops
    return flow


def ring_flow(given: PlacementProblem) -> Floats:
    """Bytes of the rings of gradients, (dp pp, dp pp), by (4)."""
    flow, position = _empty(given)
    if given.candidate.pipelines > 1:
        flow[position, np.roll(position, -1, axis=0)] += replica_flow(given)
    return flow


def _empty(given: PlacementProblem) -> tuple[Floats, Ints]:
    """No flow, and the position of every stage in every replica, (dp, pp)."""
    pp, dp = given.candidate.pp, given.candidate.pipelines
    return np.zeros((pp * dp, pp * dp)), np.arange(pp * dp).reshape(dp, pp)


def slot_distance(given: PlacementProblem) -> Floats:
    """Seconds per byte from every slot to every other, (slots, slots), zero on the diagonal."""
    sites = given.slots[:, 0]
    distance = 1.0 / given.links.rate[np.ix_(sites, sites)]
    np.fill_diagonal(distance, 0.0)
    return np.asarray(distance)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlacement:
    """A placement: ``seconds`` of a step without the optimizer, and sites ``positions`` (pp * dp, R)."""

    seconds: float
    positions: Ints


def found_placement(given: PlacementProblem, devices: Ints) -> FoundPlacement:
    """Sites of the positions whose workers have these ``devices`` (pp, pipelines, width)."""
    candidate = given.candidate
    blocks = devices.swapaxes(0, 1).reshape(candidate.pp * candidate.pipelines, candidate.width)
    sites = np.asarray(given.links.site_of[blocks][:, :: candidate.width // given.ranks])
    return FoundPlacement(seconds=given.cost(sites), positions=sites)
